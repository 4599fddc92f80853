package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// hearing is an operator's endpoint that remembers what it was told.
type hearing struct {
	mu    sync.Mutex
	heard []Envelope
}

func (h *hearing) config(t *testing.T) testnet.Config {
	return testnet.Config{Verify: func(_ http.Header, body []byte) error {
		var e Envelope
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.heard = append(h.heard, e)
		return nil
	}}
}

// of returns the data of the events of a topic.
func (h *hearing) of(topic string) (out []map[string]any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.heard {
		if data, ok := e.Data.(map[string]any); ok && e.Type == topic {
			out = append(out, data)
		}
	}
	return out
}

func named(topic string) func(*SubscriberInput) {
	return func(in *SubscriberInput) { in.Topics = &[]string{topic} }
}

// TestOperatorHearsOfAFailingSubscriberOnceOverARestart goes through a real node,
// twice over one store.
func TestOperatorHearsOfAFailingSubscriberOnceOverARestart(t *testing.T) {
	dir := t.TempDir()
	node := func(c *Config) {
		c.Storage.Dir = dir
		c.Sched.Breaker = sched.BreakerPolicy{Consecutive: 1, OpenFor: 20 * time.Millisecond, OpenMax: 20 * time.Millisecond}
	}
	b := setup(t, node)
	h := &hearing{}
	b.subscribe("operator", b.receiver(h.config(t)), named("dispatcher.*"))
	failing := b.receiver(testnet.Config{Behaviour: testnet.Behaviour{Status: http.StatusInternalServerError}})
	retry := func(in *SubscriberInput) {
		in.Retry = &delivery.Retry{Schedule: []time.Duration{time.Millisecond, time.Millisecond}}
	}
	b.subscribe("failing", failing, retry)
	dead := b.publish("one")
	b.eventually("dead", func() bool { info, _ := b.delivery(dead, "failing"); return info.State == delivery.StateDead })
	b.eventually("the operator hears of both", func() bool {
		return len(h.of(TopicBreakerOpened)) == 1 && len(h.of(TopicDeadLetters)) == 1
	})
	if data := h.of(TopicBreakerOpened)[0]; data["subscriber"] != "failing" || data["why"] != "consecutive_failures" {
		t.Errorf("%v", data)
	}
	if data := h.of(TopicDeadLetters)[0]; data["subscriber"] != "failing" || data["count"] != 1.0 || data["reason"] != "exhausted" {
		t.Errorf("%v", data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	again := setup(t, node)
	if records, err := again.alarms.records.load(); err != nil || len(records) != 2 {
		t.Fatalf("records %v %v", records, err)
	}
	before := failing.Tally().Counts().Requests
	two := again.publish("two")
	again.eventually("dead again", func() bool { info, _ := again.delivery(two, "failing"); return info.State == delivery.StateDead })
	if failing.Tally().Counts().Requests == before {
		t.Error("the circuit was not tried again")
	}
	// What comes later in the operator's queue shows that nothing came before it.
	test, err := again.TestSubscriber(t.Context(), "t", "operator")
	if err != nil {
		t.Fatal(err)
	}
	again.delivered(test, "operator")
	if n, m := len(h.of(TopicBreakerOpened)), len(h.of(TopicDeadLetters)); n != 1 || m != 1 {
		t.Errorf("told of the circuit %d times, of dead letters %d times", n, m)
	}
}

// TestFullDiskIsToldWhileItIsFullToTheOperatorAlone: the alarm is stored although
// publishes are refused, and no other tenant learns of the node.
func TestFullDiskIsToldWhileItIsFullToTheOperatorAlone(t *testing.T) {
	var free atomic.Uint64
	free.Store(10 << 30)
	b := setup(t, func(c *Config) {
		c.Operations.Tenant = "t"
		c.Storage.Watermark.Bytes, c.Storage.Watermark.Percent = 1<<30, 5
		c.Storage.Watermark.Every = 5 * time.Millisecond
		c.Storage.Watermark.Usage = func() (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
	})
	h, other := &hearing{}, &hearing{}
	b.subscribe("operator", b.receiver(h.config(t)), named("dispatcher.disk.*"))
	if _, _, err := b.PutTenant(t.Context(), "other", TenantInput{}); err != nil {
		t.Fatal(err)
	}
	in := SubscriberInput{URL: new(b.receiver(other.config(t)).URL("", "/hook")), TLS: &delivery.TLSMaterial{CAPEM: b.ca.PEM()}}
	named("dispatcher.*")(&in)
	stranger, err := b.CreateSubscriber(t.Context(), "other", in)
	if err != nil {
		t.Fatal(err)
	}
	free.Store(1 << 20)
	b.eventually("the operator hears of it", func() bool { return len(h.of(TopicDiskFull)) == 1 })
	if b.Ready() == nil {
		t.Error("publishes are accepted again: the alarm may have waited for that")
	}
	if data := h.of(TopicDiskFull)[0]; data["free_bytes"] != float64(1<<20) || data["total_bytes"] != float64(100<<30) {
		t.Errorf("%v", data)
	}
	free.Store(10 << 30)
	b.eventually("ready again", func() bool { return b.Ready() == nil })
	receipt, err := b.TestSubscriber(t.Context(), "other", stranger.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the stranger is tested", func() bool {
		info, _, err := b.GetDelivery(t.Context(), delivery.ID{Event: receipt.Key, Subscriber: stranger.ID}.String())
		return err == nil && info.State == delivery.StateDelivered
	})
	if n := len(other.of(TopicDiskFull)); n != 0 {
		t.Errorf("another tenant heard of the node %d times", n)
	}
}
