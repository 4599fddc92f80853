package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// bench is a store under test with what a test needs to talk to it.
type bench struct {
	*Store
	tb     testing.TB
	fs     vfs.FS
	misuse atomic.Pointer[string]
	batch  atomic.Int64 // batches made durable
	keys   atomic.Uint64
	start  time.Time // of the event keys
}

// openBench opens a store in fs; nil = a new one in memory. change may alter the
// configuration.
func openBench(tb testing.TB, fs vfs.FS, change ...func(*Config)) *bench {
	tb.Helper()
	b, err := tryBench(tb, fs, change...)
	noErr(tb, err)
	tb.Cleanup(func() { b.close() })
	return b
}

func tryBench(tb testing.TB, fs vfs.FS, change ...func(*Config)) (*bench, error) {
	if fs == nil {
		fs = InMemory()
	}
	b := &bench{tb: tb, fs: fs, start: time.Now()}
	cfg := Config{
		Dir: "store", FS: fs, Node: "n1", MemTable: 1 << 20, Cache: 1 << 20, DedupeMemory: 64 << 10,
		CommitDelay: 200 * time.Microsecond, lookAfter: 3,
		Retention: Retention{Every: -1},
		Observer: Observer{
			Misuse: func(what string) { b.misuse.Store(&what) },
			Batch:  func(BatchInfo) { b.batch.Add(1) },
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(cfg)
	b.Store = s
	return b, err
}

// close closes the store and fails the test on an undefined operation.
func (b *bench) close() {
	b.tb.Helper()
	if err := b.Close(); err != nil {
		b.tb.Errorf("close: %v", err)
	}
	if what := b.misuse.Load(); what != nil {
		b.tb.Errorf("possible API misuse: %s", *what)
	}
}

// eventKey makes a key of a time; n makes it unique.
func eventKey(at time.Time, n uint64) delivery.EventKey {
	k := firstEventKey(at)
	k[6], k[8] = 0x70, 0x80
	binary.BigEndian.PutUint64(k[8:], 0x80<<56|n)
	return k
}

// event makes an event for subscribers, all of them in the common lane.
func (b *bench) event(id string, subs ...delivery.SubscriberNum) *delivery.Published {
	n := b.keys.Add(1)
	return eventAt(b.start.Add(time.Duration(n)*time.Millisecond), n, id, subs...)
}

func eventAt(at time.Time, n uint64, id string, subs ...delivery.SubscriberNum) *delivery.Published {
	e := &delivery.Event{
		Key: eventKey(at, n), ID: id, Tenant: 7, Topic: "order.created", ContentType: "application/json",
		Payload: fmt.Appendf(nil, `{"id":%q}`, id), Priority: delivery.PriorityNormal,
	}
	x := &delivery.Published{Event: e, Dedupe: &delivery.Dedupe{ID: id}}
	sum := sha256.Sum256(e.Payload)
	copy(x.Dedupe.Content[:], sum[:])
	for _, sub := range subs {
		x.Targets = append(x.Targets, delivery.Target{Subscriber: sub, Lane: delivery.PriorityNormal})
	}
	return x
}

// publish stores one event and fails the test if that does not work.
func (b *bench) publish(x *delivery.Published) delivery.Receipt {
	b.tb.Helper()
	r := b.Publish(context.Background(), []*delivery.Published{x})
	noErr(b.tb, r[0].Err)
	return r[0]
}

// commitNow writes facts and waits until they are durable.
func (b *bench) commitNow(facts ...delivery.Fact) error {
	done := make(chan error, 1)
	b.Commit(facts, func(err error) { done <- err })
	return <-done
}

// mustCommit is commitNow for facts that must work.
func (b *bench) mustCommit(facts ...delivery.Fact) {
	b.tb.Helper()
	noErr(b.tb, b.commitNow(facts...))
}

// ready returns the whole common lane of a subscriber.
func (b *bench) ready(sub delivery.SubscriberNum) []delivery.Row {
	b.tb.Helper()
	rows, err := b.Ready(sub, delivery.PriorityNormal, 0, 1<<20)
	noErr(b.tb, err)
	return rows
}

// retrying returns all of a subscriber's rows that wait for a due time.
func (b *bench) retrying(sub delivery.SubscriberNum) []delivery.Row {
	b.tb.Helper()
	rows, err := b.Retrying(sub, time.Time{}, 0, 1<<20)
	noErr(b.tb, err)
	return rows
}

// delivered is the outcome of a successful attempt.
func (b *bench) delivered(r delivery.Row) *delivery.Moved {
	return b.moved(r, delivery.NextDelivered, delivery.ReasonDelivered, 200)
}

// moved is the outcome of an attempt with an HTTP status.
func (b *bench) moved(r delivery.Row, next delivery.Next, reason delivery.Reason, status int) *delivery.Moved {
	at := r.Event.Time().Add(time.Second)
	return &delivery.Moved{
		Lease: b.Lease(), Row: r, At: at, Next: next, Reason: reason,
		Attempt: &delivery.Attempt{
			Number: r.Attempts + 1, LeasedAt: at.Add(-30 * time.Millisecond), StartedAt: at.Add(-20 * time.Millisecond),
			EndedAt: at, Lease: b.Lease(),
			Result: delivery.Result{
				Status: status, Protocol: delivery.ProtocolHTTP3, Remote: "192.0.2.1:443", BytesSent: 321,
				Phases: delivery.Phases{FirstByte: 15 * time.Millisecond, Total: 20 * time.Millisecond},
			},
			Outcome: delivery.Outcome{Reason: reason},
		},
	}
}

// retried is the outcome of a failed attempt that will be repeated.
func (b *bench) retried(r delivery.Row, due time.Time) *delivery.Moved {
	m := b.moved(r, delivery.NextRetry, delivery.ReasonStatusRetry, 503)
	m.Due = due
	return m
}

// died is the outcome of a last failed attempt.
func (b *bench) died(r delivery.Row) *delivery.Moved {
	m := b.moved(r, delivery.NextDead, delivery.ReasonExhausted, 503)
	m.Signature = "status_retry:503"
	return m
}
