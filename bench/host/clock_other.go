//go:build !linux

package host

import "time"

var started = time.Now()

// Now is the wall clock at the process's start, continued monotonically: times
// of two processes differ by what the clock was set in between.
func Now() time.Duration { return time.Duration(started.UnixNano()) + time.Since(started) }
