package sched

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// span is where rows stand together, in order.
type span struct {
	sub   delivery.SubscriberNum
	place delivery.Place
	which uint64 // lane or key
}

func spanOf(r delivery.Row) span {
	switch r.Place {
	case delivery.PlaceReady:
		return span{r.Subscriber, r.Place, uint64(r.Lane)}
	case delivery.PlaceParked:
		return span{r.Subscriber, r.Place, uint64(r.Key)}
	default:
		return span{r.Subscriber, r.Place, 0}
	}
}

type ref struct {
	event delivery.EventKey
	sub   delivery.SubscriberNum
}

type mark struct {
	epoch delivery.Epoch
	due   time.Time
	upTo  delivery.Seq
	pos   delivery.Position
}

// entry is one line of a delivery's timeline.
type entry struct {
	at   time.Time
	pos  delivery.Position
	fact delivery.Fact
}

// queueState is what the facts so far amount to.
type queueState struct {
	t        testing.TB
	wakes    []delivery.Row // rows with a due time, by (due, subscriber)
	silent   bool           // keep no timelines
	replayed bool           // built from facts that were checked when they were new
	rows     map[span][]delivery.Row
	blocked  map[delivery.SubscriberNum]map[delivery.KeyHash]delivery.Seq
	marks    map[span][]mark
	events   map[delivery.EventKey]*delivery.Event
	health   map[delivery.SubscriberNum]delivery.Health
	timeline map[ref][]entry
	ended    map[ref]delivery.Next
	attempts map[ref]int
}

func newQueueState(t testing.TB) *queueState {
	return &queueState{
		t: t, rows: map[span][]delivery.Row{}, blocked: map[delivery.SubscriberNum]map[delivery.KeyHash]delivery.Seq{},
		marks: map[span][]mark{}, events: map[delivery.EventKey]*delivery.Event{},
		health: map[delivery.SubscriberNum]delivery.Health{}, timeline: map[ref][]entry{},
		ended: map[ref]delivery.Next{}, attempts: map[ref]int{},
	}
}

func order(a, b delivery.Row) int {
	if a.Place == delivery.PlaceRetry {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Seq, b.Seq))
	}
	return cmp.Compare(a.Seq, b.Seq)
}

func (st *queueState) insert(r delivery.Row) {
	sp := spanOf(r)
	i, found := slices.BinarySearchFunc(st.rows[sp], r, order)
	if found {
		st.t.Errorf("row %d of subscriber %d was written twice", r.Seq, r.Subscriber)
	}
	st.rows[sp] = slices.Insert(st.rows[sp], i, r)
	if r.Place == delivery.PlaceRetry {
		i, _ := slices.BinarySearchFunc(st.wakes, r, wakeOrder)
		st.wakes = slices.Insert(st.wakes, i, r)
	}
}

func wakeOrder(a, b delivery.Row) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Subscriber, b.Subscriber), cmp.Compare(a.Seq, b.Seq))
}

func (st *queueState) remove(r delivery.Row) bool {
	sp := spanOf(r)
	i, found := slices.BinarySearchFunc(st.rows[sp], r, order)
	if found {
		st.rows[sp] = slices.Delete(st.rows[sp], i, i+1)
		if r.Place == delivery.PlaceRetry {
			w, _ := slices.BinarySearchFunc(st.wakes, r, wakeOrder)
			st.wakes = slices.Delete(st.wakes, w, w+1)
		}
		if len(st.rows[sp]) == 0 {
			delete(st.rows, sp)
		}
	}
	return found
}

func (st *queueState) page(sp span, due time.Time, seq delivery.Seq, limit int) []delivery.Row {
	rows := st.rows[sp]
	after := delivery.Row{Place: sp.place, Due: due, Seq: seq + 1}
	i, _ := slices.BinarySearchFunc(rows, after, order)
	out := slices.Clone(rows[i:min(len(rows), i+limit)])
	for j := range out {
		out[j].LeasedBy = st.leasedBy(out[j])
	}
	return out
}

func (st *queueState) leasedBy(r delivery.Row) delivery.Epoch {
	by := r.LeasedBy
	for _, m := range st.marks[spanOf(r)] {
		covers := r.Seq <= m.upTo
		if r.Place == delivery.PlaceRetry && !m.due.Equal(r.Due) {
			covers = m.due.After(r.Due)
		}
		if covers && (r.Place != delivery.PlaceRetry || r.Seq < m.pos) {
			by = max(by, m.epoch)
		}
	}
	return by
}

func (st *queueState) find(event delivery.EventKey, sub delivery.SubscriberNum) (delivery.Row, bool) {
	for sp, rows := range st.rows {
		if sp.sub != sub {
			continue
		}
		for _, r := range rows {
			if r.Event == event {
				return r, true
			}
		}
	}
	return delivery.Row{}, false
}

func (st *queueState) apply(pos delivery.Position, f delivery.Fact) {
	switch f := f.(type) {
	case *delivery.Published:
		st.published(pos, f)
	case *delivery.Leased:
		st.leased(pos, f)
	case *delivery.Moved:
		st.moved(pos, f)
	case *delivery.Replayed:
		r := delivery.Row{
			Subscriber: f.Subscriber, Event: f.Event, Lane: f.Lane, Seq: pos, First: pos, Key: f.Key,
			Attempts: f.Attempts, Replayed: true, Base: f.Attempts, EnteredAt: f.At,
		}
		st.insert(r)
		delete(st.ended, ref{f.Event, f.Subscriber})
		st.note(ref{f.Event, f.Subscriber}, f.At, pos, f)
	case *delivery.HealthChanged:
		st.health[f.Subscriber] = f.Health
	case *delivery.Dropped:
		for _, r := range f.Rows {
			st.remove(r)
			st.ended[ref{r.Event, f.Subscriber}] = delivery.NextCanceled
		}
	default:
		st.t.Errorf("fact %T", f)
	}
}

func (st *queueState) published(pos delivery.Position, f *delivery.Published) {
	st.events[f.Event.Key] = f.Event
	for _, t := range f.Targets {
		r := delivery.Row{
			Subscriber: t.Subscriber, Event: f.Event.Key, Lane: t.Lane, Seq: pos, First: pos, Key: t.Key,
			EnteredAt: f.Event.AcceptedAt(),
		}
		if t.Leased {
			r.LeasedBy = f.Lease.Epoch
		}
		if !t.Due.IsZero() {
			r.Place, r.Due = delivery.PlaceRetry, t.Due
		}
		st.insert(r)
		st.note(ref{f.Event.Key, t.Subscriber}, f.Event.AcceptedAt(), pos, f)
	}
}

// leased keeps watermarks. One at the very beginning takes back what its epoch
// had leased.
func (st *queueState) leased(pos delivery.Position, f *delivery.Leased) {
	sp := spanOf(delivery.Row{Subscriber: f.Subscriber, Place: f.Place, Lane: f.Lane, Key: f.Key})
	if f.UpTo == 0 && f.Due.IsZero() {
		st.marks[sp] = slices.DeleteFunc(st.marks[sp], func(m mark) bool { return m.epoch == f.Lease.Epoch })
		return
	}
	if st.silent {
		st.marks[sp] = st.marks[sp][:0]
	}
	st.marks[sp] = append(st.marks[sp], mark{f.Lease.Epoch, f.Due, f.UpTo, pos})
}

func (st *queueState) moved(pos delivery.Position, f *delivery.Moved) {
	id := ref{f.Row.Event, f.Row.Subscriber}
	if !st.remove(f.Row) && !st.replayed {
		st.t.Errorf("moved row %d (place %d) of subscriber %d does not stand there: %s", f.Row.Seq, f.Row.Place, f.Row.Subscriber, f.Reason)
		return
	}
	st.note(id, f.At, pos, f)
	r := f.Row
	r.Seq, r.LeasedBy = pos, 0
	if f.Prior != nil {
		r.Attempts = max(r.Attempts, f.Prior.Number)
	}
	if f.Attempt != nil && f.Attempt.Outcome.Class != delivery.ClassInterrupted {
		r.Attempts = max(r.Attempts, f.Attempt.Number)
	}
	st.attempts[id] = r.Attempts
	switch f.Next {
	case delivery.NextRetry:
		r.Place, r.Due = delivery.PlaceRetry, f.Due.Truncate(time.Millisecond)
		st.insert(r)
	case delivery.NextParked:
		r.Place, r.Due = delivery.PlaceParked, time.Time{}
		st.insert(r)
	case delivery.NextDelivered, delivery.NextDead, delivery.NextCanceled:
		st.ended[id] = f.Next
	default:
		st.t.Errorf("moved to %d", f.Next)
	}
	st.block(f)
}

func (st *queueState) block(f *delivery.Moved) {
	sub, key := f.Row.Subscriber, f.Row.Key
	if (f.Block || f.Unblock) && key == 0 {
		st.t.Errorf("block or unblock without a key")
	}
	switch {
	case f.Block:
		if st.blocked[sub] == nil {
			st.blocked[sub] = map[delivery.KeyHash]delivery.Seq{}
		}
		st.blocked[sub][key] = f.Row.First
	case f.Unblock:
		if n := len(st.rows[span{sub, delivery.PlaceParked, uint64(key)}]); n > 0 && !st.replayed {
			st.t.Errorf("subscriber %d: unblocked a key with %d parked rows", sub, n)
		}
		delete(st.blocked[sub], key)
		delete(st.marks, span{sub, delivery.PlaceParked, uint64(key)})
	}
}

func (st *queueState) note(id ref, at time.Time, pos delivery.Position, f delivery.Fact) {
	if st.silent {
		return
	}
	st.timeline[id] = append(st.timeline[id], entry{at, pos, f})
}
