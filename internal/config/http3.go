package config

import (
	"strconv"
	"strings"
)

// HTTP3Mode says for which origins HTTP/3 may be used.
type HTTP3Mode uint8

// Modes.
const (
	HTTP3On        HTTP3Mode = iota // every origin
	HTTP3Off                        // none
	HTTP3Percent                    // a stable share of origins
	HTTP3Allowlist                  // those that are named
)

// HTTP3 is the operator's switch for HTTP/3.
type HTTP3 struct {
	Mode    HTTP3Mode
	Percent int // with HTTP3Percent, 0 to 100
}

// String returns on, off, allowlist or a percentage.
func (h HTTP3) String() string {
	switch h.Mode {
	case HTTP3Off:
		return "off"
	case HTTP3Percent:
		return strconv.Itoa(h.Percent) + "%"
	case HTTP3Allowlist:
		return "allowlist"
	default:
		return "on"
	}
}

func parseHTTP3(s string) (HTTP3, error) {
	switch strings.ToLower(s) {
	case "on", "true", "yes":
		return HTTP3{Mode: HTTP3On}, nil
	case "off", "false", "no":
		return HTTP3{Mode: HTTP3Off}, nil
	case "allowlist":
		return HTTP3{Mode: HTTP3Allowlist}, nil
	}
	digits, isPercent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	if !isPercent || err != nil || n < 0 || n > 100 {
		return HTTP3{}, bad("is not a mode", "write on, off, allowlist, or a share of the origins such as 25%")
	}
	return HTTP3{Mode: HTTP3Percent, Percent: n}, nil
}

func http3Value(p *HTTP3) value {
	return scalar[HTTP3]{p, "on|off|N%|allowlist", parseHTTP3, HTTP3.String}
}
