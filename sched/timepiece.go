package sched

import (
	"sync/atomic"
	"time"
)

// timepiece reads the clock twice at once: monotonic time for waiting, wall
// time for what is stored. It notices when the wall clock was set.
type timepiece struct {
	base   time.Time // with a monotonic reading
	wallAt time.Time // base's wall time
	// skew is added to wall readings; tests set the clock with it.
	skew atomic.Int64

	offset  atomic.Int64 // last seen wall minus monotonic, in nanoseconds
	forward atomic.Int64 // sum of steps forward
	stepped atomic.Int64 // wall time, Unix nanoseconds, after the last step forward
	onStep  func(time.Duration)
}

// stepTolerance is how far wall and monotonic time may drift between two
// readings before it is called a step.
const stepTolerance = time.Second

func newTimepiece(onStep func(time.Duration)) *timepiece {
	now := time.Now()
	return &timepiece{base: now, wallAt: now.Round(0), onStep: onStep}
}

// mono returns monotonic time alone.
func (t *timepiece) mono() instant { return instant(time.Since(t.base)) }

// read returns both times.
func (t *timepiece) read() (time.Time, instant) {
	now := time.Now()
	mono := now.Sub(t.base)
	wall := now.Round(0).Add(time.Duration(t.skew.Load())).UTC()
	offset := int64(wall.Sub(t.wallAt) - mono)
	last := t.offset.Load()
	by := time.Duration(offset - last)
	if by < stepTolerance && by > -stepTolerance {
		return wall, instant(mono)
	}
	if t.offset.CompareAndSwap(last, offset) {
		if by > 0 {
			t.forward.Add(int64(by))
			t.stepped.Store(wall.UnixNano())
		}
		t.onStep(by)
	}
	return wall, instant(mono)
}

// age is how long ago entered was. A step of the wall clock does not age what
// was there before it: setting the clock forward by a week must not send every
// pending delivery to the dead letters.
func (t *timepiece) age(entered, wall time.Time) time.Duration {
	return ageOf(entered, wall, time.Duration(t.forward.Load()), t.stepped.Load())
}

func ageOf(entered, wall time.Time, forward time.Duration, stepped int64) time.Duration {
	age := wall.Sub(entered)
	if forward > 0 && entered.UnixNano() < stepped {
		age -= forward
	}
	return max(age, 0)
}
