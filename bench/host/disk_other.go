//go:build !linux

package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Disk is only known on Linux.
func Disk(dir string) (string, error) {
	return "", fmt.Errorf("file system of %s: %w", dir, errors.ErrUnsupported)
}

// Syncs is only known on Linux.
func Syncs(string, time.Duration, time.Duration) (stats.Latency, error) {
	return stats.Latency{}, fmt.Errorf("probe syncs: %w", errors.ErrUnsupported)
}
