package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// started pairs Go's monotonic clock with the kernel's, which all processes of
// the machine share.
var started = func() (at struct {
	kernel time.Duration
	here   time.Time
}) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil {
		at.kernel = time.Duration(ts.Nano())
	}
	at.here = time.Now()
	return at
}()

// Now is the machine's monotonic clock: times taken in two processes can be
// subtracted. It costs what time.Now costs.
func Now() time.Duration { return started.kernel + time.Since(started.here) }
