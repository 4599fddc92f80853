package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// TestFullDiskRefusesPublishesDrainsAndRecovers is case Q11: below the watermark
// nothing new is taken, what is queued goes out, and room is noticed without a
// restart.
func TestFullDiskRefusesPublishesDrainsAndRecovers(t *testing.T) {
	var free atomic.Uint64
	free.Store(10 << 30)
	b := setup(t, func(c *Config) {
		c.Storage.Watermark.Bytes, c.Storage.Watermark.Percent = 1<<30, 5
		c.Storage.Watermark.Every = 5 * time.Millisecond
		c.Storage.Watermark.Usage = func() (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
	})
	r := b.receiver(testnet.Config{})
	b.subscribe("s", r)
	if _, err := b.PauseSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	queued := b.publish("queued")

	free.Store(1 << 20)
	b.eventually("not ready", func() bool { return b.Ready() != nil })
	_, err := b.Publish(t.Context(), "t", EventInput{ID: "refused", Topic: "a", Payload: []byte("1")})
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok || unavailable.RetryAfter != 30*time.Second {
		t.Fatalf("publish on a full disk: %v", err)
	}
	if _, err := b.ResumeSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	b.delivered(queued, "s")
	if r.Tally().Has("refused") {
		t.Error("a refused event was delivered")
	}

	free.Store(10 << 30)
	b.eventually("ready again", func() bool { return b.Ready() == nil })
	b.delivered(b.publish("after"), "s")
}

// TestDeletedSubscriberAndTenantTakeEverythingWithThem: pending deliveries are
// canceled with the reason on the timeline, and payloads go.
func TestDeletedSubscriberAndTenantTakeEverythingWithThem(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{Behaviour: testnet.Behaviour{Status: 500}})
	b.subscribe("gone", r)
	b.subscribe("stays", b.receiver(testnet.Config{}))
	if _, err := b.PauseSubscriber(t.Context(), "t", "gone"); err != nil {
		t.Fatal(err)
	}
	receipt := b.publish("evt")
	b.delivered(receipt, "stays")
	if err := b.DeleteSubscriber(t.Context(), "t", "gone"); err != nil {
		t.Fatal(err)
	}
	b.eventually("canceled", func() bool {
		info, timeline := b.delivery(receipt, "gone")
		last := timeline[len(timeline)-1]
		return info.State == delivery.StateCanceled && last.Reason == delivery.ReasonSubscriberDeleted
	})
	if _, _, err := b.GetSubscriber(t.Context(), "t", "gone"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := b.DeleteTenant(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	b.eventually("the payload is gone", func() bool {
		_, err := b.store.Event(t.Context(), receipt.Key)
		return errors.Is(err, delivery.ErrEventGone)
	})
	stats, err := b.StoreStats(t.Context())
	if err != nil || stats.Open != 0 || stats.Subscribers != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}

// TestDeletedEventIsNeverSent: its payload goes at once, a pending delivery of it
// is canceled.
func TestDeletedEventIsNeverSent(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{})
	b.subscribe("s", r)
	if _, err := b.PauseSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	receipt := b.publish("secret")
	if err := b.DeleteEvent(t.Context(), "t", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.GetEvent(t.Context(), "t", "secret"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted event is shown: %v", err)
	}
	if _, err := b.ResumeSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	b.eventually("canceled", func() bool {
		info, _ := b.delivery(receipt, "s")
		return info.State == delivery.StateCanceled && info.Reason == delivery.ReasonEventDeleted
	})
	b.delivered(b.publish("next"), "s")
	if r.Tally().Has("secret") {
		t.Error("a deleted event was sent")
	}
}
