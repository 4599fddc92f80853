package storage

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestTheWatermarkIsTheSmallerOfBytesAndPercent(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		free, total uint64
		mark        Watermark
		full        bool
	}{
		{2 * gib, 1000 * gib, Watermark{}, false}, // 5 % would be 50 GiB
		{gib - 1, 1000 * gib, Watermark{}, true},
		{gib / 2, 8 * gib, Watermark{}, false}, // 5 % is less than 1 GiB
		{gib / 4, 8 * gib, Watermark{}, true},
		{9, 100, Watermark{Percent: 10}, true},
		{11, 100, Watermark{Percent: 10}, false},
		{0, gib, Watermark{Bytes: -1}, false},
	} {
		b := openBench(t, nil, func(cfg *Config) {
			cfg.Watermark = c.mark
			cfg.Watermark.Usage = func() (uint64, uint64, error) { return c.free, c.total, nil }
		})
		r := b.Publish(t.Context(), []*delivery.Published{b.event("a", 1)})
		if full := errors.Is(r[0].Err, delivery.ErrStoreFull); full != c.full || !full && r[0].Err != nil {
			t.Errorf("%+v: %v", c, r[0].Err)
		}
		b.close()
	}
}

func TestTheDiskIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		var fail atomic.Bool
		var told []bool
		free.Store(10)
		b := openBench(t, nil, func(c *Config) {
			c.Watermark = Watermark{Bytes: 100, Percent: 50, Every: 2 * time.Second, Usage: func() (uint64, uint64, error) {
				if fail.Load() {
					return 0, 0, errors.New("no answer")
				}
				return free.Load(), 1000, nil
			}}
			c.Observer.Disk = func(_, _ uint64, full bool) { told = append(told, full) }
		})
		noErr(t, b.Start(t.Context()))
		publish := func(id string) error { return b.Publish(t.Context(), []*delivery.Published{b.event(id, 1)})[0].Err }
		full, ok := errors.AsType[*delivery.StoreFullError](publish("a"))
		if !ok || full.Free != 10 || full.Watermark != 100 || full.RetryAfter != 30*time.Second {
			t.Errorf("refusal %+v", full)
		}
		free.Store(200)
		time.Sleep(2*time.Second + time.Nanosecond)
		noErr(t, publish("a"))
		free.Store(99)
		time.Sleep(2 * time.Second)
		wantErr(t, publish("b"), delivery.ErrStoreFull)
		fail.Store(true) // the last answer stays
		time.Sleep(2 * time.Second)
		wantErr(t, publish("b"), delivery.ErrStoreFull)
		// What says that the disk is full is stored all the same, and opens no door to
		// what comes with it.
		urgent := func(id string) *delivery.Published {
			p := b.event(id, 1)
			p.Urgent = true
			return p
		}
		noErr(t, b.Publish(t.Context(), []*delivery.Published{urgent("alarm")})[0].Err)
		for _, r := range b.Publish(t.Context(), []*delivery.Published{urgent("another"), b.event("c", 1)}) {
			wantErr(t, r.Err, delivery.ErrStoreFull)
		}
		b.close()
		if len(told) != 3 || !told[0] || told[1] || !told[2] {
			t.Errorf("told %v", told)
		}
	})
}
