package origin

import (
	"errors"
	"fmt"
	"time"
)

// Config of a [Batcher]. The zero value of every field is its default.
type Config struct {
	// MaxEvents is the most events in one batch. Default: 50.
	MaxEvents int
	// MaxBytes is the size above which a batch is closed; one larger event goes
	// alone. Default: 8 MiB.
	MaxBytes int64
	// MaxWait is how long the first event of a batch waits for others. Default: 2 s.
	MaxWait time.Duration
	// MaxInFlight is how many batches may be on their way at a time while the
	// origin is well. Default: 2.
	MaxInFlight int
	// Window is how many events the machine holds. Default: 500.
	Window int
	// BackoffBase and BackoffMax are the first and the longest wait after a
	// failure. Default: 1 s and 5 min.
	BackoffBase, BackoffMax time.Duration
	// SplitAfter is how often a whole batch is suspect before it is halved.
	// Halves are halved at once. Default: 2.
	SplitAfter int
	// Attempts is how often an event alone may be suspect while others get
	// through. Default: 5.
	Attempts int
	// MaxAge is the age after which a failure is final whatever the cause.
	// Default: 72 h.
	MaxAge time.Duration
}

// Failures in a row, of whatever batches, after which the origin itself is
// taken to be down and gets one request at a time.
const downAfter = 3

func (c Config) withDefaults() Config {
	orDefault(&c.MaxEvents, 50)
	orDefault(&c.MaxBytes, 8<<20)
	orDefault(&c.MaxWait, 2*time.Second)
	orDefault(&c.MaxInFlight, 2)
	orDefault(&c.Window, 500)
	orDefault(&c.BackoffBase, time.Second)
	orDefault(&c.BackoffMax, 5*time.Minute)
	orDefault(&c.SplitAfter, 2)
	orDefault(&c.Attempts, 5)
	orDefault(&c.MaxAge, 72*time.Hour)
	return c
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", field, value, rule))
		}
	}
	check(c.MaxEvents > 0, "max_events", "must be above 0", c.MaxEvents)
	check(c.MaxBytes > 0, "max_bytes", "must be above 0", c.MaxBytes)
	check(c.MaxWait > 0, "max_wait", "must be above 0", c.MaxWait)
	check(c.MaxInFlight > 0, "max_in_flight", "must be above 0", c.MaxInFlight)
	check(c.Window >= c.MaxEvents, "window", "must hold at least one batch", c.Window)
	check(c.BackoffBase > 0, "backoff_base", "must be above 0", c.BackoffBase)
	check(c.BackoffMax >= c.BackoffBase, "backoff_max", "must not be below backoff_base", c.BackoffMax)
	check(c.SplitAfter > 0, "split_after", "must be above 0", c.SplitAfter)
	check(c.Attempts > 0, "attempts", "must be above 0", c.Attempts)
	check(c.MaxAge > 0, "max_age", "must be above 0", c.MaxAge)
	return errors.Join(errs...)
}
