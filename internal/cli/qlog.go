package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// qlogs returns what opens a file for the trace of a QUIC connection, nil when
// none is wanted. A trace holds addresses and frame headers, not what is sent.
func qlogs(c config.Qlog, logger *slog.Logger) func(delivery.Route) io.WriteCloser {
	if c.Dir == "" {
		return nil
	}
	return func(r delivery.Route) io.WriteCloser {
		if !traced(c.Origins, r.Origin) {
			return nil
		}
		f, err := openQlog(c.Dir, r.Origin, time.Now())
		if err != nil {
			logger.Warn("qlog_not_written", "origin", r.Origin.Authority(), "error", err.Error())
			return nil // not a typed nil
		}
		return f
	}
}

// traced reports whether an origin is one of those that are named.
func traced(names []string, o delivery.Origin) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, o.Host) || strings.EqualFold(name, o.Authority())
	})
}

// openQlog makes a file that sorts by time and names the origin.
func openQlog(dir string, o delivery.Origin, now time.Time) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	host := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, o.Host)
	pattern := fmt.Sprintf("%s_%s_%d_*.sqlog", now.UTC().Format("20060102T150405.000"), host, o.Port)
	return os.CreateTemp(filepath.Clean(dir), pattern) // mode 0600, never an existing file
}
