package storage

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func states(entries []delivery.TimelineEntry) []delivery.State {
	var out []delivery.State
	for _, e := range entries {
		out = append(out, e.State)
	}
	return out
}

func TestATimelineTellsTheWholeHistoryAndIsAPathOfTheStateMachine(t *testing.T) {
	b := openBench(t, nil)
	r := b.publish(b.event("a", 1))
	due := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	b.mustCommit(b.retried(b.ready(1)[0], due))
	d, err := b.Delivery(t.Context(), r.Event, 1)
	noErr(t, err)
	if d.State != delivery.StateRetrying || d.Attempts != 1 || !d.NextDue.Equal(due) || d.Header.ID != "a" {
		t.Errorf("retrying: %+v", d.Summary)
	}
	b.mustCommit(b.died(b.retrying(1)[0]))
	errs := b.Replay(t.Context(), time.Now(), []Replay{{Event: r.Event, Subscriber: &delivery.Subscriber{Num: 1, ID: "s"}}})
	noErr(t, errs[0])
	b.mustCommit(b.delivered(b.ready(1)[0]))

	d, err = b.Delivery(t.Context(), r.Event, 1)
	noErr(t, err)
	want := []delivery.State{
		delivery.StateReceived, delivery.StateLeased, delivery.StateAttempted, delivery.StateRetrying,
		delivery.StateLeased, delivery.StateAttempted, delivery.StateDead,
		delivery.StateLeased, delivery.StateAttempted, delivery.StateDelivered,
	}
	if got := states(d.Timeline); !slices.Equal(got, want) {
		t.Errorf("states %v\nwant   %v", got, want)
	}
	for i, s := range want[1:] {
		if !want[i].CanMove(s) {
			t.Errorf("no edge from %v to %v", want[i], s)
		}
	}
	if d.State != delivery.StateDelivered || d.Attempts != 3 {
		t.Errorf("at the end: %+v", d.Summary)
	}
	if a := d.Timeline[2].Attempt; a == nil || a.Result.Status != 503 || a.Result.Phases.Total != 20*time.Millisecond {
		t.Errorf("first attempt: %+v", a)
	}
}

func TestATimelineSaysWhatADeliveryWaitsForWhenThereIsSomethingToSay(t *testing.T) {
	for note, want := range map[string][]delivery.State{
		"":                {delivery.StateReceived},
		"waits for event": {delivery.StateReceived, delivery.StateLeased, delivery.StateRetrying},
	} {
		b := openBench(t, nil)
		x := b.event("a", 1)
		x.Targets[0].Key = 5
		r := b.publish(x)
		m := b.moved(b.ready(1)[0], delivery.NextParked, delivery.ReasonOrder, 0)
		m.Attempt, m.Note = nil, note
		b.mustCommit(m)
		d, err := b.Delivery(t.Context(), r.Event, 1)
		noErr(t, err)
		if got := states(d.Timeline); !slices.Equal(got, want) {
			t.Errorf("note %q: states %v, want %v", note, got, want)
		}
		if last := d.Timeline[len(d.Timeline)-1]; last.Note != note || note != "" && last.Reason != delivery.ReasonOrder {
			t.Errorf("note %q: %+v", note, last)
		}
		if d.Attempts != 0 {
			t.Errorf("%d attempts", d.Attempts)
		}
	}
}

func TestReplayNeedsAFinishedDelivery(t *testing.T) {
	b := openBench(t, nil)
	sub := &delivery.Subscriber{Num: 1, ID: "s"}
	replay := func(k delivery.EventKey, force bool) error {
		return b.Replay(t.Context(), time.Now(), []Replay{{Event: k, Subscriber: sub, Force: force}})[0]
	}
	r := b.publish(b.event("a", 1))
	wantErr(t, replay(r.Event, true), delivery.ErrState)
	wantErr(t, replay(eventKey(time.Now(), 99), true), delivery.ErrNoDelivery)
	b.mustCommit(b.delivered(b.ready(1)[0]))
	wantErr(t, replay(r.Event, false), delivery.ErrState)
	noErr(t, replay(r.Event, true))
	wantErr(t, replay(r.Event, true), delivery.ErrState)

	dead := b.publish(b.event("b", 1))
	b.mustCommit(b.died(b.ready(1)[1]))
	twice := b.Replay(t.Context(), time.Now(), []Replay{{Event: dead.Event, Subscriber: sub}, {Event: dead.Event, Subscriber: sub}})
	noErr(t, twice[0])
	wantErr(t, twice[1], delivery.ErrState)
	rows := b.ready(1)
	if len(rows) != 2 || !rows[1].Replayed || rows[1].Attempts != 1 || rows[1].Base != 1 || rows[1].Event != dead.Event {
		t.Errorf("rows %+v", rows)
	}
	if _, _, err := b.DeadLetter(t.Context(), dead.Event, 1); !errors.Is(err, delivery.ErrNoDelivery) {
		t.Errorf("dead letter of a replayed delivery: %v", err)
	}
}

// page reads all pages of a listing.
func pages(t *testing.T, limit int, read func(cursor string, limit int) (Page, error)) []Summary {
	t.Helper()
	var all []Summary
	for next := ""; ; {
		p, err := read(next, limit)
		noErr(t, err)
		all = append(all, p.Items...)
		if next = p.Next; next == "" {
			return all
		}
	}
}

func TestListingsArePagedInOrderWithoutGapOrRepetition(t *testing.T) {
	b := openBench(t, nil)
	start := time.Now().Add(-50 * time.Hour).Truncate(time.Hour)
	var keys []delivery.EventKey
	for i := range 150 {
		// Five an hour, for everybody; subscriber 300 gets every third.
		subs := []delivery.SubscriberNum{1, 2, 77}
		if i%3 == 0 {
			subs = append(subs, 300)
		}
		x := eventAt(start.Add(time.Duration(i)*12*time.Minute), uint64(i), eventKey(start, uint64(i)).String(), subs...)
		if i%2 == 0 {
			x.Event.Topic = "invoice.paid"
		}
		keys = append(keys, b.publish(x).Event)
	}
	slices.Reverse(keys)
	third := slices.DeleteFunc(slices.Clone(keys), func(k delivery.EventKey) bool { return k[15]%3 != 0 })

	for _, limit := range []int{1, 7, 1000} {
		got := pages(t, limit, func(c string, n int) (Page, error) {
			return b.Deliveries(t.Context(), Filter{Subscriber: 300}, c, n)
		})
		if list := eventsOf(got); !slices.Equal(list, third) {
			t.Errorf("limit %d, by subscriber: %d items, want %d", limit, len(list), len(third))
		}
		got = pages(t, limit, func(c string, n int) (Page, error) {
			return b.Deliveries(t.Context(), Filter{Tenant: 7}, c, n)
		})
		if list := eventsOf(got); len(got) != 150*3+len(third) || !slices.Equal(slices.Compact(list), keys) {
			t.Errorf("limit %d, by tenant: %d items", limit, len(got))
		}
		got = pages(t, limit, func(c string, n int) (Page, error) {
			return b.Deliveries(t.Context(), Filter{Event: keys[149]}, c, n)
		})
		if len(got) != 4 || got[0].Subscriber != 1 || got[3].Subscriber != 300 {
			t.Errorf("limit %d, by event: %+v", limit, got)
		}
	}
	since, until := start.Add(10*time.Hour), start.Add(20*time.Hour)
	got := pages(t, 9, func(c string, n int) (Page, error) {
		return b.Deliveries(t.Context(), Filter{Subscriber: 2, Since: since, Until: until, Topic: "invoice.*"}, c, n)
	})
	if len(got) != 25 || got[0].Event.Time().Before(since) || !got[0].Event.Time().Before(until) {
		t.Errorf("in ten hours: %d items", len(got))
	}
	if _, err := b.Deliveries(t.Context(), Filter{}, "", 1); !errors.Is(err, ErrBadFilter) {
		t.Errorf("listing everything: %v", err)
	}
	if _, err := b.Deliveries(t.Context(), Filter{Tenant: 7}, "AAAA", 1); !errors.Is(err, ErrBadCursor) {
		t.Errorf("foreign cursor: %v", err)
	}
}

func eventsOf(list []Summary) []delivery.EventKey {
	var out []delivery.EventKey
	for _, s := range list {
		out = append(out, s.Event)
	}
	return out
}

func TestFinishedHoursGoAndPendingOnesStay(t *testing.T) {
	b := openBench(t, nil)
	old := time.Now().Add(-10 * 24 * time.Hour).Truncate(time.Hour)
	done := b.publish(eventAt(old, 1, "done", 1))
	b.mustCommit(b.delivered(b.ready(1)[0]))
	pending := b.publish(eventAt(old.Add(3*time.Hour), 2, "pending", 2))
	dead := b.publish(eventAt(old.Add(6*time.Hour), 3, "dead", 3))
	b.mustCommit(b.died(b.ready(3)[0]))
	young := b.publish(eventAt(time.Now().Add(-time.Hour), 4, "young", 4))
	b.mustCommit(b.delivered(b.ready(4)[0]))

	info, err := b.Retain(t.Context())
	noErr(t, err)
	if info.OpenHours != 1 {
		t.Errorf("%d open hours before the horizon, want 1", info.OpenHours)
	}
	for _, c := range []struct {
		r    delivery.Receipt
		want error
	}{{done, delivery.ErrEventGone}, {pending, nil}, {dead, delivery.ErrEventGone}, {young, nil}} {
		if _, err := b.Event(t.Context(), c.r.Event); !errors.Is(err, c.want) {
			t.Errorf("event %s: %v, want %v", c.r.ID, err, c.want)
		}
	}
	// The dead letter has its own copy and brings the event back.
	d, err := b.Delivery(t.Context(), dead.Event, 3)
	noErr(t, err)
	if d.State != delivery.StateDead || d.Header == nil || d.Header.ID != "dead" {
		t.Errorf("dead letter: %+v", d.Summary)
	}
	noErr(t, b.Replay(t.Context(), time.Now(), []Replay{{Event: dead.Event, Subscriber: &delivery.Subscriber{Num: 3}}})[0])
	e, err := b.Event(t.Context(), dead.Event)
	noErr(t, err)
	if string(e.Payload) != `{"id":"dead"}` {
		t.Errorf("restored payload %q", e.Payload)
	}
	// What is pending again is kept, and goes when it is done.
	if info, err = b.Retain(t.Context()); err != nil || info.OpenHours != 2 {
		t.Errorf("%d open hours (%v), want 2", info.OpenHours, err)
	}
	b.mustCommit(b.delivered(b.ready(3)[0]), b.delivered(b.ready(2)[0]))
	if info, err = b.Retain(t.Context()); err != nil || info.OpenHours != 0 {
		t.Errorf("%d open hours (%v), want 0", info.OpenHours, err)
	}
	if _, err := b.Event(t.Context(), pending.Event); !errors.Is(err, delivery.ErrEventGone) {
		t.Errorf("finished at last: %v", err)
	}
}
