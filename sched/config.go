package sched

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Config is what a [Scheduler] can be told. Zero values mean the defaults.
type Config struct {
	// MaxInFlight bounds attempts in flight on this node. Default 2048: each takes
	// 16 KiB of stack.
	MaxInFlight int
	// MaxSlow bounds attempts of slow receivers among them. Default half of
	// MaxInFlight, so that any number of hanging receivers leaves the other half.
	MaxSlow int
	// MaxNew bounds attempts of receivers that nothing is known about: they may be
	// hanging ones that are not recognised yet. Default a quarter of MaxInFlight.
	MaxNew int
	// SlowAfter is how long an attempt may be in flight, and how long a
	// subscriber's recent attempts may take, before it is charged to MaxSlow.
	// Default 2 s.
	SlowAfter time.Duration
	// StartAllowance is how many attempts of a subscriber that nothing is known
	// about may be in flight; each success allows one more, up to its
	// concurrency. It keeps hanging receivers from taking a burst of slots before
	// they are recognised, and a cold receiver from a burst of handshakes. Default 1.
	StartAllowance int

	// WindowRows bounds the rows of one lane that an actor holds. Default 128,
	// at least 2.
	WindowRows int
	// MaxRows is the number of rows in memory over all actors above which windows
	// shrink to one row. Default 32768.
	MaxRows int
	// PayloadBytes bounds payloads held in memory on the fast path. What exceeds
	// it is read again from the queue when its turn comes. Default 16 MiB.
	PayloadBytes int64
	// MaxUncommitted bounds outcomes that were handed over and are not durable
	// yet: what a crash may send again. Default 8192.
	MaxUncommitted int
	// MaxActors is the number of actors in memory above which the search for
	// backlogs pauses and due retries wait. New publishes do not. Default 16384.
	MaxActors int
	// Loaders bounds actors that read from the queue side by side. Default 8.
	Loaders int

	// Lookahead is how far ahead due times are held in memory. Default 1 min.
	Lookahead time.Duration
	// MaxSleep bounds one wait of the retry clock, so that a machine that was
	// suspended, or whose clock was set, notices. Default 15 min.
	MaxSleep time.Duration
	// RereadAfter is the first wait after a failed read; it doubles up to 30 s.
	// Default 1 s.
	RereadAfter time.Duration

	// Breaker says when a subscriber's circuit opens.
	Breaker BreakerPolicy
	// AgeAfter is how long a lower lane waits before it counts as aged. Default 2 s.
	AgeAfter time.Duration
	// AgedEvery is the share of picks that go to an aged lane: one in AgedEvery.
	// Default 8, at least 2.
	AgedEvery int

	// DrainFor is how long Stop lets attempts in flight end by themselves before
	// it interrupts them. Default 5 s; negative = not at all.
	DrainFor time.Duration

	// Limiter holds the token buckets. Default: local ones.
	Limiter Limiter
	// Disable is asked to disable a subscriber, once what led to it is durable: the
	// engine changes the record, tells the operator once and calls Kick. It is
	// called on a goroutine of its own. Nil = a subscriber that should be disabled
	// is only no longer served.
	Disable func(sub delivery.SubscriberNum, reason delivery.Reason, at time.Time)
	// Observer gets typed events. Its zero value ignores them.
	Observer Observer
	// Logger gets what an operator must know. Default: discarded.
	Logger *slog.Logger
	// Rand draws from [0, 1). Default math/rand/v2.
	Rand func() float64
}

// BreakerPolicy says when a subscriber's circuit opens, and for how long.
type BreakerPolicy struct {
	Consecutive int           // failures in a row that open it; default 5
	Window      int           // outcomes the failure rate is taken over; default 20, at most 64
	OpenFor     time.Duration // first wait, doubling; default 30 s
	OpenMax     time.Duration // longest wait; default 10 min
}

const rereadMax = 30 * time.Second

// withDefaults returns a copy with every unset field filled in.
func (c Config) withDefaults() Config {
	def(&c.MaxInFlight, 2048)
	def(&c.MaxSlow, max(1, c.MaxInFlight/2))
	def(&c.MaxNew, max(1, c.MaxInFlight/4))
	def(&c.SlowAfter, 2*time.Second)
	def(&c.StartAllowance, 1)
	def(&c.WindowRows, 128)
	def(&c.MaxRows, 1<<15)
	def(&c.PayloadBytes, 16<<20)
	def(&c.MaxUncommitted, 8192)
	def(&c.MaxActors, 1<<14)
	def(&c.Loaders, 8)
	def(&c.Lookahead, time.Minute)
	def(&c.MaxSleep, 15*time.Minute)
	def(&c.RereadAfter, time.Second)
	def(&c.Breaker.Consecutive, 5)
	def(&c.Breaker.Window, 20)
	def(&c.Breaker.OpenFor, 30*time.Second)
	def(&c.Breaker.OpenMax, 10*time.Minute)
	def(&c.AgeAfter, 2*time.Second)
	def(&c.AgedEvery, 8)
	def(&c.DrainFor, 5*time.Second)
	if c.Limiter == nil {
		c.Limiter = NewLocalLimiter()
	}
	if c.Disable == nil {
		c.Disable = func(delivery.SubscriberNum, delivery.Reason, time.Time) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate joins what is wrong with a config that has its defaults.
func (c Config) validate() error {
	var errs []error
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s: %d is below %d", name, value, least))
		}
	}
	positive := func(name string, value time.Duration) {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s: %s is not positive", name, value))
		}
	}
	atLeast("max_in_flight", c.MaxInFlight, 1)
	atLeast("max_slow", c.MaxSlow, 1)
	atLeast("max_new", c.MaxNew, 1)
	atLeast("start_allowance", c.StartAllowance, 1)
	atLeast("window_rows", c.WindowRows, 2)
	atLeast("max_rows", c.MaxRows, 1)
	atLeast("max_uncommitted", c.MaxUncommitted, 1)
	atLeast("max_actors", c.MaxActors, 1)
	atLeast("loaders", c.Loaders, 1)
	atLeast("breaker.consecutive", c.Breaker.Consecutive, 1)
	atLeast("breaker.window", c.Breaker.Window, 1)
	atLeast("aged_every", c.AgedEvery, 2)
	if c.MaxSlow > c.MaxInFlight {
		errs = append(errs, fmt.Errorf("max_slow: %d is above max_in_flight %d", c.MaxSlow, c.MaxInFlight))
	}
	if c.Breaker.Window > 64 {
		errs = append(errs, fmt.Errorf("breaker.window: %d is above 64", c.Breaker.Window))
	}
	if c.PayloadBytes < 0 {
		errs = append(errs, fmt.Errorf("payload_bytes: %d is negative", c.PayloadBytes))
	}
	positive("slow_after", c.SlowAfter)
	positive("lookahead", c.Lookahead)
	positive("max_sleep", c.MaxSleep)
	positive("reread_after", c.RereadAfter)
	positive("breaker.open_for", c.Breaker.OpenFor)
	positive("age_after", c.AgeAfter)
	if c.Breaker.OpenMax < c.Breaker.OpenFor {
		errs = append(errs, fmt.Errorf("breaker.open_max: %s is below open_for %s", c.Breaker.OpenMax, c.Breaker.OpenFor))
	}
	return errors.Join(errs...)
}
