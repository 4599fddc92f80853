package protoselect

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ModeKind says for which origins HTTP/3 may be selected.
type ModeKind uint8

// Kinds of mode.
const (
	ModeOn        ModeKind = 0 // default: every origin
	ModeOff       ModeKind = 1 // none: the switch for an incident with QUIC itself
	ModePercent   ModeKind = 2 // a stable share of origins
	ModeAllowlist ModeKind = 3 // named origins
)

var modeNames = [...]string{"on", "off", "percent", "allowlist"}

// String returns the name used in configuration.
func (k ModeKind) String() string {
	if int(k) < len(modeNames) {
		return modeNames[k]
	}
	return "invalid"
}

// ParseModeKind reads a configuration name.
func ParseModeKind(s string) (ModeKind, bool) {
	for i, name := range modeNames {
		if s == name {
			return ModeKind(i), true //nolint:gosec // four names
		}
	}
	return ModeOn, false
}

// Mode is the operator's switch for HTTP/3. It governs what the selector does
// by itself; a pin, which names one origin, goes before it. ModeOff also turns
// a subscriber's own "h3" into TCP: the operator's switch must not fill queues
// with dead letters.
type Mode struct {
	Kind ModeKind
	// Percent of origins with ModePercent, 0 to 100. An origin's place in the
	// order is fixed, so raising the number only adds origins.
	Percent int
	// Origins with ModeAllowlist: "host" (any port) or "host:port".
	Origins []string
}

func (m Mode) validate() error {
	switch {
	case int(m.Kind) >= len(modeNames):
		return fmt.Errorf("mode: unknown kind %d", m.Kind)
	case m.Percent < 0 || m.Percent > 100:
		return fmt.Errorf("mode: percent %d is not within 0 and 100", m.Percent)
	}
	return nil
}

func (m Mode) allows(o delivery.Origin, bucket uint8) bool {
	switch m.Kind {
	case ModeOff:
		return false
	case ModePercent:
		return int(bucket) < m.Percent
	case ModeAllowlist:
		for _, name := range m.Origins {
			if strings.EqualFold(name, o.Host) || strings.EqualFold(name, o.Authority()) {
				return true
			}
		}
		return false
	default:
		return true
	}
}

// PinProtocol is what an operator pins an origin to.
type PinProtocol uint8

// Pins.
const (
	PinNone PinProtocol = 0 // no pin
	PinAuto PinProtocol = 1 // the selector decides, even where Mode leaves the origin out
	PinH3   PinProtocol = 2 // HTTP/3 without a fallback: that is what it is for
	PinTCP  PinProtocol = 3
)

var pinNames = [...]string{"", "auto", "h3", "tcp"}

// String returns the wire name.
func (p PinProtocol) String() string {
	if int(p) < len(pinNames) {
		return pinNames[p]
	}
	return "invalid"
}

// ParsePin reads a wire name: "auto", "h3" or "tcp".
func ParsePin(s string) (PinProtocol, bool) {
	for i, name := range pinNames {
		if s == name && i > 0 {
			return PinProtocol(i), true //nolint:gosec // four names
		}
	}
	return PinNone, false
}

// Pin is an operator's word about one origin. It goes before Mode and before a
// subscriber's "auto" and "h3"; a subscriber that asked for tcp, h2 or h1 keeps
// TCP, because its receiver said that it has nothing else.
type Pin struct {
	Protocol PinProtocol
	Until    time.Time // zero = until removed
}

func (p Pin) active(now time.Time) bool {
	return p.Protocol != PinNone && (p.Until.IsZero() || now.Before(p.Until))
}

// isHostname reports whether a host is a name that DNS can say something about:
// not an address, not a single label.
func isHostname(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	return strings.Contains(strings.TrimSuffix(host, "."), ".") && !strings.HasSuffix(host, ".localhost")
}
