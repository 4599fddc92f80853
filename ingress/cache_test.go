package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// newCache makes a cache with the configuration's defaults.
func newCache(t *testing.T, cfg Config, far bool) (*sourceCache, *fakeSources) {
	t.Helper()
	if far {
		cfg.ControlPlane = &ControlPlaneConfig{} // for the defaults that come with it
	}
	cfg = cfg.withDefaults()
	sources := newFakeSources()
	for name, s := range standardSources() {
		sources.set("acme", name, s)
	}
	c, err := newSourceCache(&cfg, sources, far, &sampledLog{log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c, sources
}

func TestKnownSourceIsReadOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, false)
		for range 200 {
			if _, err := c.get(t.Context(), "acme", "github"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := sources.callsFor("acme", "github"); got != 4 {
			t.Errorf("%d calls in 200 s, want 4", got)
		}
	})
}

func TestStaleSourceIsUsedWhileItIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		first, err := c.get(t.Context(), "acme", "github")
		if err != nil {
			t.Fatal(err)
		}
		changed := standardSources()["github"]
		sources.set("acme", "github", changed)
		sources.delay = 2 * time.Second
		time.Sleep(61 * time.Second)
		began := time.Now()
		for range 5 {
			if p, err := c.get(t.Context(), "acme", "github"); err != nil || p != first {
				t.Errorf("while it is read again: %v", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a request waited %v for the control plane", took)
		}
		time.Sleep(3 * time.Second)
		if p, err := c.get(t.Context(), "acme", "github"); err != nil || p.Source != changed {
			t.Errorf("afterwards: %v", err)
		}
		if got := sources.callsFor("acme", "github"); got != 2 {
			t.Errorf("%d calls, want 2", got)
		}
	})
}

func TestControlPlaneThatIsDownDoesNotStopKnownTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Fatal(err)
		}
		sources.setErr(errDown)
		for range 23 * 60 {
			time.Sleep(time.Minute)
			if _, err := c.get(t.Context(), "acme", "github"); err != nil {
				t.Fatal(err)
			}
		}
		calls := sources.callsFor("acme", "github")
		if calls < 23*60 || calls > 24*60 {
			t.Errorf("%d calls in 23 hours of minutes", calls)
		}
		time.Sleep(2 * time.Hour)
		if _, err := c.get(t.Context(), "acme", "github"); !errors.Is(err, errDown) {
			t.Errorf("after a day and more: %v, want the error", err)
		}
		// It is back, and so is the tenant, as soon as the failure is forgotten.
		sources.setErr(nil)
		time.Sleep(5 * time.Second)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}

func TestStaleSourceThatIsGoneIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Fatal(err)
		}
		sources.remove("acme", "github")
		time.Sleep(61 * time.Second)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Errorf("the first one after a minute: %v", err)
		}
		synctest.Wait()
		if _, err := c.get(t.Context(), "acme", "github"); !errors.Is(err, ErrUnknownSource) {
			t.Errorf("the next one: %v", err)
		}
	})
}

func TestUnknownIDCostsOneCallAMinute(t *testing.T) {
	for _, far := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, sources := newCache(t, Config{}, far)
			for range 300 {
				if _, err := c.get(t.Context(), "acme", "invented"); !errors.Is(err, ErrUnknownSource) {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if got := sources.callsFor("acme", "invented"); got != 5 {
				t.Errorf("far %v: %d calls in 5 minutes, want 5", far, got)
			}
		})
	}
}

// A scanner invents ids faster than can be remembered, and comes back to each.
// No id may reach the control plane twice in a minute, and no memory may grow.
func TestInventedIDsNeverReachTheControlPlaneTwiceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{Cache: CacheConfig{Unknown: 256}}, true)
		asked := map[string]time.Time{} // by id, when it was asked for last
		limited := 0
		for second := range 600 {
			for i := range 20 {
				id := fmt.Sprintf("invented-%d", (second*20+i)%700)
				before := sources.callsFor("acme", id)
				_, err := c.get(t.Context(), "acme", id)
				switch {
				case errors.Is(err, errLimited):
					limited++
				case !errors.Is(err, ErrUnknownSource):
					t.Fatal(err)
				}
				if sources.callsFor("acme", id) == before {
					continue
				}
				if last, ok := asked[id]; ok && time.Since(last) < time.Minute {
					t.Fatalf("%s was asked for twice within %v", id, time.Since(last))
				}
				asked[id] = time.Now()
			}
			time.Sleep(time.Second)
		}
		if c.unknown.Len() > 256 || len(c.reads) != 0 || c.known.Len() != 0 {
			t.Errorf("held: %d absent, %d reads, %d known", c.unknown.Len(), len(c.reads), c.known.Len())
		}
		if limited == 0 {
			t.Error("the limit was never reached, so that this shows nothing")
		}
		// A tenant that is known is served through all of it.
		time.Sleep(time.Minute)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Errorf("a tenant that exists: %v", err)
		}
	})
}

func TestMemoryIsFlatWhateverIsInvented(t *testing.T) {
	c, _ := newCache(t, Config{Cache: CacheConfig{Unknown: 2048}}, false)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	invent := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := c.get(t.Context(), fmt.Sprintf("tenant-%0100d", i), "x"); !errors.Is(err, ErrUnknownSource) {
				t.Fatal(err)
			}
		}
	}
	c.sources = nobody{}
	invent(0, 3_000) // more than are held
	before := heap()
	invent(3_000, 23_000)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("grew by %d KiB over 20,000 invented ids of 108 bytes", grown>>10)
	}
}

// nobody is a registry without a source.
type nobody struct{}

func (nobody) Source(context.Context, string, string) (*Source, error) { return nil, ErrUnknownSource }

func TestFailedReadingIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		sources.setErr(errDown)
		for range 60 {
			if _, err := c.get(t.Context(), "acme", "github"); !errors.Is(err, errDown) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := sources.callsFor("acme", "github"); got != 12 {
			t.Errorf("%d calls in a minute, want one every 5 s", got)
		}
	})
}

func TestConcurrentRequestsShareOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		sources.delay = time.Second
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := c.get(t.Context(), "acme", "github"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := sources.callsFor("acme", "github"); got != 1 {
			t.Errorf("%d calls, want 1", got)
		}
	})
}

func TestReadingThatHangsEndsAfterThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		sources.delay = time.Hour
		began := time.Now()
		_, err := c.get(t.Context(), "acme", "github")
		if took := time.Since(began); took != 3*time.Second || !errors.Is(err, errReadTimeout) {
			t.Errorf("%v after %v", err, took)
		}
		// One who leaves earlier does not wait, and does not end it for the others.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(10 * time.Second)
		began = time.Now()
		if _, err := c.get(ctx, "acme", "stripe"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestChangeIsSeenByTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, false)
		get := func() *Source {
			p, err := c.get(t.Context(), "acme", "new")
			if err != nil {
				return nil
			}
			return p.Source
		}
		if get() != nil {
			t.Fatal("it exists already")
		}
		first, second := standardSources()["github"], standardSources()["github"]
		sources.set("acme", "new", first)
		if get() != nil {
			t.Fatal("the absence was not remembered")
		}
		c.forget("acme", "new")
		if get() != first {
			t.Fatal("not there after forget")
		}
		sources.set("acme", "new", second)
		c.forget("acme", "") // all of the tenant's
		if get() != second {
			t.Fatal("not changed after forget")
		}
		sources.remove("acme", "new")
		c.forget("acme", "new")
		if get() != nil {
			t.Fatal("still there")
		}
	})
}

// A reading that began before a change must not put the old configuration into
// the cache after it.
func TestReadingOvertakenByAChangeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, false)
		sources.delay = time.Second
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.get(t.Context(), "acme", "github") })
		synctest.Wait() // the old one is read, and on its way
		changed := standardSources()["github"]
		sources.set("acme", "github", changed)
		c.forget("acme", "github")
		wg.Wait()
		if p, err := c.get(t.Context(), "acme", "github"); err != nil || p.Source != changed {
			t.Errorf("the old configuration came back: %v", err)
		}
	})
}

func TestInvalidSourceFailsClosedAndKeepsTheLastGoodOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sources := newCache(t, Config{}, true)
		if _, err := c.get(t.Context(), "acme", "github"); err != nil {
			t.Fatal(err)
		}
		sources.set("acme", "github", &Source{})
		sources.set("acme", "fresh", &Source{})
		time.Sleep(2 * time.Minute)
		for range 3 {
			if _, err := c.get(t.Context(), "acme", "github"); err != nil {
				t.Errorf("the last good one: %v", err)
			}
			synctest.Wait()
		}
		var invalid *SourceError
		if _, err := c.get(t.Context(), "acme", "fresh"); !errors.As(err, &invalid) {
			t.Errorf("got %v", err)
		}
	})
}

func TestClosedCacheReadsNothing(t *testing.T) {
	c, sources := newCache(t, Config{}, false)
	c.close()
	if _, err := c.get(t.Context(), "acme", "github"); !errors.Is(err, errClosed) || sources.count() != 0 {
		t.Errorf("%v, %d calls", err, sources.count())
	}
}
