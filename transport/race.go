package transport

import (
	"context"
	"errors"
	"time"
)

// race tries candidates in order until one succeeds: the next one starts when
// the one before has failed or stagger has passed (RFC 8305 section 5). The
// first success wins, the others are cancelled, and what they still bring is
// discarded. more may deliver further candidates once; nil if there are none to
// come. The error joins those of all candidates, in the order in which they
// failed.
//
// Connections are raced, never requests.
func race[C, R any](
	ctx context.Context, stagger time.Duration, candidates []C, more <-chan []C,
	try func(context.Context, C) (R, error), discard func(R), run func(func()),
) (R, error) {
	type outcome struct {
		value R
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	results := make(chan outcome)
	started, pending := 0, 0
	start := func() {
		c := candidates[started]
		started++
		pending++
		run(func() {
			value, err := try(ctx, c)
			select {
			case results <- outcome{value, err}:
			case <-over:
				if err == nil {
					discard(value)
				}
			}
		})
	}

	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var none R
	var errs []error
	if len(candidates) > 0 {
		start()
	}
	for pending > 0 || started < len(candidates) || more != nil {
		next := false
		select {
		case r := <-results:
			pending--
			if r.err == nil {
				return r.value, nil
			}
			errs = append(errs, r.err)
			next = true
		case <-timer.C:
			next = true
		case late := <-more:
			more = nil
			candidates = append(candidates, late...)
			next = pending == 0
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		if next && started < len(candidates) {
			start()
			timer.Reset(stagger)
		}
	}
	if len(errs) == 0 {
		return none, errNoCandidate
	}
	return none, errors.Join(errs...)
}

// errNoCandidate is a race that nobody ran.
var errNoCandidate = errors.New("there is no address to dial")
