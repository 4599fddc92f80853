package storage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestCensusCountsEveryRowAndEveryDeadLetterOnce(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.Partitions = 3 })
	const subs, each = 5, censusChunk / 4 // more than one look's worth
	var dead []delivery.Fact
	for sub := delivery.SubscriberNum(1); sub <= subs; sub++ {
		for i := range each {
			x := b.event(fmt.Sprintf("%d-%d", sub, i), sub)
			if i%2 == 0 {
				x.Targets[0].Due = time.Now().Add(time.Hour)
			}
			b.publish(x)
		}
		dead = append(dead, b.moved(b.ready(sub)[0], delivery.NextDead, delivery.ReasonRejected, 0))
	}
	b.mustCommit(dead...)
	got := map[delivery.SubscriberNum]*[3]int64{}
	paced := 0
	err := b.Census(t.Context(), func(context.Context) error { paced++; return nil }, func(c Counted) {
		n := got[c.Subscriber]
		if n == nil {
			n = new([3]int64)
			got[c.Subscriber] = n
		}
		switch {
		case c.Dead:
			n[2] += c.Rows
		default:
			n[c.Place] += c.Rows
			if off := time.Since(c.Oldest).Abs(); off > time.Hour {
				t.Errorf("oldest %v", c.Oldest)
			}
		}
	})
	noErr(t, err)
	for sub := delivery.SubscriberNum(1); sub <= subs; sub++ {
		if n := got[sub]; n == nil || *n != [3]int64{each/2 - 1, each / 2, 1} {
			t.Errorf("subscriber %d: %v", sub, n)
		}
	}
	if len(got) != subs {
		t.Errorf("%d subscribers", len(got))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if err := b.Census(ctx, func(ctx context.Context) error { return ctx.Err() }, func(Counted) {}); paced > 0 && err == nil {
		t.Error("a census that was told to stop went on")
	}
}
