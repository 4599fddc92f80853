package transport

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// runner is one candidate: what becomes of it, and when.
type runner struct {
	name string
	took time.Duration
	err  error
}

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
)

// racing runs candidates in a bubble and returns winner, duration and who was
// discarded.
func racing(ctx context.Context, more <-chan []runner, candidates ...runner) (winner string, took time.Duration, discarded []string, err error) {
	started := time.Now()
	var tasks tasks
	gone := make(chan string, 8)
	winner, err = race(ctx, 250*time.Millisecond, candidates, more,
		func(ctx context.Context, r runner) (string, error) {
			select {
			case <-time.After(r.took):
				return r.name, r.err
			case <-ctx.Done():
				if r.err == nil && r.took > time.Minute {
					return r.name, nil // connected although it was cancelled
				}
				return "", ctx.Err()
			}
		},
		func(name string) { gone <- name }, tasks.run)
	took = time.Since(started)
	<-tasks.none()
	close(gone)
	for name := range gone {
		discarded = append(discarded, name)
	}
	return winner, took, discarded, err
}

func TestRaceStartsTheNextOnFailureOrAfterTheStagger(t *testing.T) {
	ms := time.Millisecond
	cases := []struct {
		name       string
		candidates []runner
		winner     string
		took       time.Duration
		discarded  int
		errs       []error
	}{
		{"one", []runner{{"a", 10 * ms, nil}}, "a", 10 * ms, 0, nil},
		{"the first fails", []runner{{"a", 10 * ms, errFirst}, {"b", 10 * ms, nil}}, "b", 20 * ms, 0, nil},
		{"the first is silent", []runner{{"a", time.Minute, nil}, {"b", 10 * ms, nil}}, "b", 260 * ms, 0, nil},
		{"the first is slow but wins", []runner{{"a", 300 * ms, nil}, {"b", time.Second, nil}}, "a", 300 * ms, 0, nil},
		{"the loser comes up all the same", []runner{{"a", time.Hour, nil}, {"b", 10 * ms, nil}}, "b", 260 * ms, 1, nil},
		{"the third by two staggers", []runner{{"a", time.Minute, nil}, {"b", time.Minute, nil}, {"c", 0, nil}}, "c", 500 * ms, 0, nil},
		{"all fail", []runner{{"a", 10 * ms, errFirst}, {"b", 10 * ms, errSecond}}, "", 20 * ms, 0, []error{errFirst, errSecond}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				winner, took, discarded, err := racing(t.Context(), nil, c.candidates...)
				if winner != c.winner || took != c.took || len(discarded) != c.discarded {
					t.Fatalf("%q won after %v, discarded %v; want %q after %v, %d", winner, took, discarded, c.winner, c.took, c.discarded)
				}
				for _, want := range c.errs {
					if !errors.Is(err, want) {
						t.Fatalf("error %v lacks %v", err, want)
					}
				}
			})
		})
	}
}

func TestRaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errFirst)
		defer cancel()
		_, took, _, err := racing(ctx, nil, runner{"a", time.Minute, nil})
		if !errors.Is(err, errFirst) || took != time.Second {
			t.Fatalf("%v after %v", err, took)
		}
	})
}

func TestRaceTakesLateCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan []runner, 1)
		time.AfterFunc(time.Second, func() { more <- []runner{{"late", 0, nil}} })
		winner, took, _, err := racing(t.Context(), more, runner{"a", 10 * time.Millisecond, errFirst})
		if winner != "late" || took != time.Second || err != nil {
			t.Fatalf("%q after %v, %v", winner, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		more := make(chan []runner, 1)
		more <- nil
		_, _, _, err := racing(t.Context(), more, runner{"a", 10 * time.Millisecond, errFirst})
		if !errors.Is(err, errFirst) {
			t.Fatalf("%v", err)
		}
	})
}
