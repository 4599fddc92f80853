package link

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dispatcher-engine/dispatcher/bench/host"
)

// exactly prepares the calling goroutine for short sleeps: a thread of its own,
// which the kernel wakes without the usual slack of 50 µs. The returned function
// gives the thread back.
func exactly() func() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // ns; without it, sleeps end a little later
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the default
		runtime.UnlockOSThread()
	}
}

// sleepUntil sleeps until a time of the machine's clock. Go's own timers may
// come a millisecond late when the process is idle; that would be added to every
// round trip.
func sleepUntil(at time.Duration) {
	if host.Now() >= at {
		return
	}
	ts := unix.NsecToTimespec(int64(at))
	for {
		err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
