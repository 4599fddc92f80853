package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// deadOnes publishes n events for subscriber 1, all of which die.
func (b *bench) deadOnes(n int) (keys []delivery.EventKey) {
	b.tb.Helper()
	for i := range n {
		keys = append(keys, b.publish(b.event(fmt.Sprint("dead-", i), 1)).Event)
	}
	var moved []delivery.Fact
	for _, row := range b.ready(1) {
		moved = append(moved, b.died(row))
	}
	b.mustCommit(moved...)
	return keys
}

func (b *bench) deadLetters(f Filter) []Summary {
	b.tb.Helper()
	f.Subscriber = 1
	page, err := b.DeadLetters(b.tb.Context(), f, "", maxLimit)
	noErr(b.tb, err)
	return page.Items
}

// TestAPageOfReplaysAndItsRecordAreOneWriteWhereverTheMachineDies takes the image
// of a crash before every single write of a job. In each the record says exactly
// what was replayed, and that is not less than what was acknowledged.
func TestAPageOfReplaysAndItsRecordAreOneWriteWhereverTheMachineDies(t *testing.T) {
	const letters, page = 12, 3
	cr := &crashes{mem: InMemory(), rec: &recorder{}, off: true}
	b := openBench(t, errorfs.Wrap(cr.mem, cr))
	keys := b.deadOnes(letters)
	cr.mu.Lock()
	cr.off = false
	cr.mu.Unlock()
	done := 0
	for part := range slices.Chunk(keys, page) {
		list := make([]Replay, 0, page)
		for _, key := range part {
			list = append(list, Replay{Event: key, Subscriber: &delivery.Subscriber{Num: 1, ID: "s"}})
		}
		errs, err := b.ReplayPage(t.Context(), time.Now(), "job", list, func(errs []error) []byte {
			return strconv.AppendInt(nil, int64(done+len(errs)), 10)
		})
		noErr(t, errors.Join(append(errs, err)...))
		done += len(part)
		cr.acked.Store(int64(done))
	}
	images := cr.stop()
	if len(images) < letters/page {
		t.Fatalf("%d images are too few to mean anything", len(images))
	}
	seen := map[int]bool{}
	for k, image := range images {
		again, err := tryBench(t, image.fs)
		noErr(t, err)
		record, ok, err := again.ReplayJob("job")
		noErr(t, err)
		n := 0
		if ok {
			n, err = strconv.Atoi(string(record))
			noErr(t, err)
		}
		pending, dead := len(again.ready(1)), len(again.deadLetters(Filter{}))
		if pending != n || dead != letters-n || n < image.acked {
			t.Errorf("crash %d before %s: the record says %d, %d are pending and %d dead; %d were acknowledged",
				k, image.op, n, pending, dead, image.acked)
		}
		seen[n] = true
		again.close()
	}
	if len(seen) < letters/page {
		t.Errorf("the images show %v alone", seen)
	}
}

func TestADeliveryThatDiesAgainIsNotReplayedByWhatCameBefore(t *testing.T) {
	b := openBench(t, nil)
	b.deadOnes(2)
	all := b.deadLetters(Filter{})
	first := all[1].ChangedAt
	if first.After(all[0].ChangedAt) {
		first = all[0].ChangedAt
	}
	bound := all[0].ChangedAt.Add(time.Hour)
	if n := len(b.deadLetters(Filter{DiedBefore: bound})); n != 2 {
		t.Errorf("%d died before %v", n, bound)
	}
	if n := len(b.deadLetters(Filter{DiedBefore: first})); n != 0 {
		t.Errorf("%d died before the first of them", n)
	}
	replay := func(before time.Time) error {
		return b.Replay(t.Context(), time.Now(), []Replay{{
			Event: all[0].Event, Subscriber: &delivery.Subscriber{Num: 1, ID: "s"}, DiedBefore: before,
		}})[0]
	}
	wantErr(t, replay(first), delivery.ErrState)
	if n := len(b.ready(1)); n != 0 {
		t.Fatalf("%d rows after a replay that was refused", n)
	}
	noErr(t, replay(bound))
	wantErr(t, replay(bound), delivery.ErrState)
	if n := len(b.ready(1)); n != 1 {
		t.Errorf("%d rows after one replay and its repetition", n)
	}
}

func TestReplayJobsAreListedAndDeleted(t *testing.T) {
	b := openBench(t, nil)
	for _, id := range []string{"b", "a", "c"} {
		noErr(t, b.PutReplayJob(t.Context(), id, []byte("of "+id)))
	}
	noErr(t, b.DeleteReplayJobs(t.Context(), "b", "none"))
	jobs, err := b.ReplayJobs()
	noErr(t, err)
	if got := fmt.Sprintf("%s", jobs); got != "[{a of a} {c of c}]" {
		t.Errorf("%s", got)
	}
	if _, ok, err := b.ReplayJob("b"); ok || err != nil {
		t.Errorf("a deleted one: %v, %v", ok, err)
	}
	_, err = b.ReplayPage(context.Background(), time.Now(), "", nil, func([]error) []byte { return nil })
	wantErr(t, err, ErrBadRecord)
	_, err = b.ReplayPage(context.Background(), time.Now(), "a", make([]Replay, MaxReplayPage+1), func([]error) []byte { return nil })
	wantErr(t, err, ErrBadRecord)
	report, err := b.Check(t.Context(), nil)
	if err != nil || report.Bad != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
