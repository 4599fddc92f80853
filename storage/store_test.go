package storage

import (
	"errors"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestPublishedEventsAreThereAfterReopening(t *testing.T) {
	b := openBench(t, nil)
	r := b.publish(b.event("a", 1, 2))
	if r.Deduplicated || r.Position == 0 || r.Deliveries != 2 {
		t.Fatalf("receipt %+v", r)
	}
	b.mustCommit(b.delivered(b.ready(1)[0]))
	fs, epoch := b.fs, b.Lease().Epoch
	b.close()

	b = openBench(t, fs)
	if b.Lease().Epoch <= epoch {
		t.Errorf("epoch %d after %d", b.Lease().Epoch, epoch)
	}
	if rows := b.ready(1); len(rows) != 0 {
		t.Errorf("delivered row is still there: %+v", rows)
	}
	rows := b.ready(2)
	if len(rows) != 1 || rows[0].Event != r.Event || rows[0].Seq != r.Position {
		t.Fatalf("pending row: %+v", rows)
	}
	e, err := b.Event(t.Context(), r.Event)
	noErr(t, err)
	if string(e.Payload) != `{"id":"a"}` || e.ID != "a" || e.Tenant != 7 {
		t.Errorf("event %+v", e)
	}
	if next := b.publish(b.event("b", 1)); next.Position <= r.Position {
		t.Errorf("position %d after %d", next.Position, r.Position)
	}
}

func TestSameIDIsAnsweredAsADuplicateAndOtherContentRefused(t *testing.T) {
	b := openBench(t, nil)
	first := b.publish(b.event("a", 1, 2, 3))
	again := b.publish(b.event("a", 1))
	if !again.Deduplicated || again.Event != first.Event || again.ID != "a" || again.Deliveries != 3 {
		t.Errorf("duplicate's receipt %+v", again)
	}
	other := b.event("a", 1)
	other.Dedupe.Content[0]++
	r := b.Publish(t.Context(), []*delivery.Published{other, b.event("b", 1), b.event("b", 1)})
	conflict, ok := errors.AsType[*delivery.ConflictError](r[0].Err)
	if !ok || conflict.Existing != first.Event || !errors.Is(r[0].Err, delivery.ErrConflict) {
		t.Errorf("other content under the same id: %v", r[0].Err)
	}
	if r[1].Err != nil || r[1].Deduplicated || !r[2].Deduplicated || r[2].Event != r[1].Event {
		t.Errorf("inside one batch: %+v, %+v", r[1], r[2])
	}
	if rows := b.ready(1); len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
}

func TestARowMovesThroughRetryToTheDeadLetters(t *testing.T) {
	b := openBench(t, nil)
	r := b.publish(b.event("a", 1))
	due := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	b.mustCommit(b.retried(b.ready(1)[0], due))
	rows := b.retrying(1)
	if len(rows) != 1 || !rows[0].Due.Equal(due) || rows[0].Attempts != 1 || rows[0].First != r.Position {
		t.Fatalf("retry row %+v", rows)
	}
	wakes, _, err := b.Wakes(delivery.WakeCursor{}, due, 10)
	noErr(t, err)
	if len(wakes) != 1 || wakes[0] != (delivery.Wake{Due: due, Subscriber: 1}) {
		t.Errorf("wakes %+v", wakes)
	}
	if at, ok, err := b.NextWake(time.Now()); err != nil || !ok || !at.Equal(due) {
		t.Errorf("next wake %v %v %v", at, ok, err)
	}
	b.mustCommit(b.died(rows[0]))
	if rows := b.retrying(1); len(rows) != 0 {
		t.Errorf("dead row still waits: %+v", rows)
	}
	if _, ok, _ := b.NextWake(time.Time{}); ok {
		t.Error("a wake is left over")
	}
}
