package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// fakeQueue is the queue's contract in memory: places, leases, positions, a
// committer with its delays, crashes that lose what was not synced. It is
// strict: a fact about a row that does not stand where it says fails the test.
//
//	Commit, Publish ─► pending ─(delay)─► visible ─(sync)─► durable ─► done
type fakeQueue struct {
	t     testing.TB
	hooks struct {
		admit, aborted func(*delivery.Published)
		committed      func(*delivery.Published, delivery.Position)
	}
	delay time.Duration // from Commit to visible
	sync  time.Duration // from visible to durable

	mu       sync.Mutex
	lease    delivery.Lease
	state    *queueState // visible
	log      []loggedFact
	durable  int // facts of log that survive a crash
	pos      delivery.Position
	pending  []pendingCommit
	poke     chan struct{}
	stop     chan struct{}
	stopped  chan struct{}
	dead     bool
	failing  error // commits and reads fail with it
	poison   func(delivery.Fact) error
	opened   delivery.Epoch // when this process began
	handed   map[ref]bool   // final outcomes handed to Commit, durable or not
	reads    int
	commits  int
	nextWake int // calls of NextWake
	wakes    int // entries of the wake index that were read
}

type loggedFact struct {
	pos  delivery.Position
	fact delivery.Fact
}

type pendingCommit struct {
	facts   []delivery.Fact
	publish []*delivery.Published
	done    func(error)
}

func newFakeQueue(t testing.TB) *fakeQueue {
	q := &fakeQueue{
		t: t, delay: time.Millisecond, sync: time.Millisecond, lease: delivery.Lease{Node: "n1", Epoch: 1}, opened: 1,
		handed: map[ref]bool{}, state: newQueueState(t), poke: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go q.commitLoop()
	return q
}

// crash gives the queue that opens next: what was not durable is gone.
func (q *fakeQueue) crash() *fakeQueue {
	q.mu.Lock()
	q.dead = true
	q.mu.Unlock()
	q.close()
	next := newFakeQueue(q.t)
	next.delay, next.sync = q.delay, q.sync
	q.mu.Lock()
	defer q.mu.Unlock()
	next.lease.Epoch = q.lease.Epoch + 1
	next.opened = next.lease.Epoch
	next.pos = q.pos + 1000 // positions are never reused
	next.state.replayed = true
	for _, l := range q.log[:q.durable] {
		next.state.apply(l.pos, l.fact)
		next.log = append(next.log, l)
	}
	next.durable = len(next.log)
	next.state.replayed = false
	return next
}

func (q *fakeQueue) close() {
	select {
	case <-q.stop:
	default:
		close(q.stop)
	}
	<-q.stopped
}

func (q *fakeQueue) Commit(facts []delivery.Fact, done func(error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.commits++
	for _, f := range facts {
		switch f := f.(type) {
		case *delivery.Moved:
			if f.Next != delivery.NextRetry && f.Next != delivery.NextParked {
				q.handed[ref{f.Row.Event, f.Row.Subscriber}] = true
			}
		case *delivery.Replayed:
			delete(q.handed, ref{f.Event, f.Subscriber})
		}
	}
	q.pending = append(q.pending, pendingCommit{facts: facts, done: done})
	select {
	case q.poke <- struct{}{}:
	default:
	}
}

// publish commits events and returns when they are durable.
func (q *fakeQueue) publish(events ...*delivery.Published) error {
	result := make(chan error, 1)
	q.mu.Lock()
	q.pending = append(q.pending, pendingCommit{publish: events, done: func(err error) { result <- err }})
	q.mu.Unlock()
	select {
	case q.poke <- struct{}{}:
	default:
	}
	select {
	case err := <-result:
		return err
	case <-q.stop:
		return delivery.ErrClosed
	}
}

func (q *fakeQueue) commitLoop() {
	defer close(q.stopped)
	for {
		select {
		case <-q.poke:
		case <-q.stop:
			return
		}
		time.Sleep(q.delay)
		q.mu.Lock()
		batch := q.pending
		q.pending = nil
		err := q.failing
		q.mu.Unlock()
		q.commitBatch(batch, err)
	}
}

func (q *fakeQueue) commitBatch(batch []pendingCommit, err error) {
	type placed struct {
		p  *delivery.Published
		at delivery.Position
	}
	var published []placed
	for i := range batch {
		for _, p := range batch[i].publish {
			p.Lease = q.Lease()
			if q.hooks.admit != nil {
				q.hooks.admit(p)
			}
		}
	}
	q.mu.Lock()
	if q.dead {
		q.mu.Unlock()
		return
	}
	errs := make([]error, len(batch))
	for i := range batch {
		errs[i] = cmp.Or(err, q.refused(batch[i].facts))
		if errs[i] != nil {
			continue
		}
		for _, p := range batch[i].publish {
			published = append(published, placed{p, q.applyLocked(p)})
		}
		for _, f := range batch[i].facts {
			q.applyLocked(f)
		}
	}
	end := len(q.log)
	q.mu.Unlock()
	time.Sleep(q.sync)
	q.mu.Lock()
	if q.dead {
		q.mu.Unlock()
		return
	}
	if err == nil {
		q.durable = end
	}
	q.mu.Unlock()
	next := 0
	for i := range batch {
		for _, p := range batch[i].publish {
			switch {
			case errs[i] != nil && q.hooks.aborted != nil:
				q.hooks.aborted(p)
			case errs[i] == nil && q.hooks.committed != nil:
				q.hooks.committed(published[next].p, published[next].at)
			}
			next++
		}
		batch[i].done(errs[i])
	}
}

func (q *fakeQueue) refused(facts []delivery.Fact) error {
	for _, f := range facts {
		if q.poison != nil {
			if err := q.poison(f); err != nil {
				return err
			}
		}
		if l := leaseOf(f); l.Epoch != q.lease.Epoch {
			return fmt.Errorf("%T of epoch %d in epoch %d: fenced", f, l.Epoch, q.lease.Epoch)
		}
	}
	return nil
}

func leaseOf(f delivery.Fact) delivery.Lease {
	switch f := f.(type) {
	case *delivery.Moved:
		return f.Lease
	case *delivery.Leased:
		return f.Lease
	case *delivery.HealthChanged:
		return f.Lease
	case *delivery.Replayed:
		return f.Lease
	case *delivery.Dropped:
		return f.Lease
	}
	panic(fmt.Sprintf("fact %T", f))
}

func (q *fakeQueue) applyLocked(f delivery.Fact) delivery.Position {
	q.pos++
	q.state.apply(q.pos, f)
	if !q.state.silent {
		q.log = append(q.log, loggedFact{q.pos, copyFact(f)})
	}
	return q.pos
}

// copyFact keeps a fact as it was: its maker may reuse it once it is durable.
func copyFact(f delivery.Fact) delivery.Fact {
	switch f := f.(type) {
	case *delivery.Moved:
		c := *f
		return &c
	case *delivery.Published:
		c := *f
		c.Targets = slices.Clone(f.Targets)
		return &c
	default:
		return f
	}
}

func (q *fakeQueue) Lease() delivery.Lease {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lease
}

func (q *fakeQueue) read() error {
	q.reads++
	return q.failing
}

// counts returns the number of reads, and of wakes that were read.
func (q *fakeQueue) counts() (reads, wakes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reads, q.wakes
}

func (q *fakeQueue) Ready(sub delivery.SubscriberNum, lane delivery.Priority, after delivery.Seq, limit int) ([]delivery.Row, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	return q.state.page(span{sub, delivery.PlaceReady, uint64(lane)}, time.Time{}, after, limit), nil
}

func (q *fakeQueue) Retrying(sub delivery.SubscriberNum, afterDue time.Time, afterSeq delivery.Seq, limit int) ([]delivery.Row, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	return q.state.page(span{sub, delivery.PlaceRetry, 0}, afterDue, afterSeq, limit), nil
}

func (q *fakeQueue) Parked(sub delivery.SubscriberNum, key delivery.KeyHash, after delivery.Seq, limit int) ([]delivery.Row, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	return q.state.page(span{sub, delivery.PlaceParked, uint64(key)}, time.Time{}, after, limit), nil
}

func (q *fakeQueue) Blocked(sub delivery.SubscriberNum, key delivery.KeyHash) (delivery.Seq, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	head, ok := q.state.blocked[sub][key]
	return head, ok, q.read()
}

func (q *fakeQueue) BlockedKeys(sub delivery.SubscriberNum, limit int) ([]delivery.KeyHash, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	var keys []delivery.KeyHash
	for key := range q.state.blocked[sub] {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys[:min(limit, len(keys))], nil
}

func (q *fakeQueue) Backlogs(ctx context.Context) iter.Seq2[delivery.SubscriberNum, error] {
	return func(yield func(delivery.SubscriberNum, error) bool) {
		var last delivery.SubscriberNum
		for {
			q.mu.Lock()
			err := errors.Join(q.read(), ctx.Err())
			next := delivery.SubscriberNum(0)
			for sp, rows := range q.state.rows {
				if len(rows) > 0 && sp.place != delivery.PlaceRetry && sp.sub > last && (next == 0 || sp.sub < next) {
					next = sp.sub
				}
			}
			q.mu.Unlock()
			if err != nil {
				yield(0, err)
				return
			}
			if next == 0 || !yield(next, nil) {
				return
			}
			last = next
		}
	}
}

func (q *fakeQueue) Wakes(after delivery.WakeCursor, until time.Time, limit int) ([]delivery.Wake, delivery.WakeCursor, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, after, err
	}
	from := delivery.Row{Due: after.Due, Subscriber: after.Subscriber + 1}
	i, _ := slices.BinarySearchFunc(q.state.wakes, from, wakeOrder)
	var all []delivery.Wake
	for _, r := range q.state.wakes[i:] {
		w := delivery.Wake{Due: r.Due, Subscriber: r.Subscriber}
		if r.Due.After(until) || len(all) == limit {
			break
		}
		if len(all) == 0 || all[len(all)-1] != w {
			all = append(all, w)
		}
	}
	if len(all) > 0 {
		after = delivery.WakeCursor(all[len(all)-1])
	}
	q.wakes += len(all)
	return all, after, nil
}

func (q *fakeQueue) NextWake(after time.Time) (time.Time, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nextWake++
	if err := q.read(); err != nil {
		return time.Time{}, false, err
	}
	i, _ := slices.BinarySearchFunc(q.state.wakes, delivery.Row{Due: after}, wakeOrder)
	if i == len(q.state.wakes) {
		return time.Time{}, false, nil
	}
	return q.state.wakes[i].Due, true, nil
}

func (q *fakeQueue) Event(_ context.Context, key delivery.EventKey) (*delivery.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	e := q.state.events[key]
	if e == nil {
		return nil, delivery.ErrEventGone
	}
	return e, nil
}

func (q *fakeQueue) EventPage(keys []delivery.EventKey, most int64) ([]*delivery.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.read(); err != nil {
		return nil, err
	}
	out := make([]*delivery.Event, len(keys))
	for i, key := range keys {
		e := q.state.events[key]
		if e == nil {
			continue
		}
		if most -= int64(len(e.Payload)); most < 0 {
			break
		}
		out[i] = e
	}
	return out, nil
}

func (q *fakeQueue) Health(sub delivery.SubscriberNum) (delivery.Health, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h, ok := q.state.health[sub]
	return h, ok, q.read()
}

// durablyLeased reports whether a delivery's row would be found as leased in
// this process if the node died now.
func (q *fakeQueue) durablyLeased(event delivery.EventKey, sub delivery.SubscriberNum) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	state := q.state
	if q.durable < len(q.log) {
		state = newQueueState(q.t)
		state.replayed = true
		for _, l := range q.log[:q.durable] {
			state.apply(l.pos, l.fact)
		}
	}
	row, ok := state.find(event, sub)
	return ok && state.leasedBy(row) >= q.opened
}

// earlierOfKey finds a delivery of the same key that stands before one that is
// being sent, and is not finished. Replays and deliver_at have no place in the
// order.
func (q *fakeQueue) earlierOfKey(event delivery.EventKey, sub delivery.SubscriberNum, lax bool) (delivery.Row, bool) {
	if lax {
		return delivery.Row{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	mine, ok := q.state.find(event, sub)
	if !ok || mine.Key == 0 || mine.Replayed || !q.state.events[event].DeliverAt.IsZero() {
		return delivery.Row{}, false
	}
	for sp, rows := range q.state.rows {
		if sp.sub != sub {
			continue
		}
		for _, r := range rows {
			if r.Key == mine.Key && r.First < mine.First && !r.Replayed && !q.handed[ref{r.Event, sub}] &&
				q.state.events[r.Event].DeliverAt.IsZero() {
				return r, true
			}
		}
	}
	return delivery.Row{}, false
}

// history shows what happened to one key of a subscriber.
func (q *fakeQueue) history(sub delivery.SubscriberNum, key delivery.KeyHash) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out strings.Builder
	for _, l := range q.log {
		switch f := l.fact.(type) {
		case *delivery.Published:
			for _, t := range f.Targets {
				if t.Subscriber == sub && t.Key == key {
					fmt.Fprintf(&out, "%6d published %s leased %v due %v\n", l.pos, f.Event.ID, t.Leased, !t.Due.IsZero())
				}
			}
		case *delivery.Replayed:
			if f.Subscriber == sub && f.Key == key {
				fmt.Fprintf(&out, "%6d replayed %s\n", l.pos, q.state.events[f.Event].ID)
			}
		case *delivery.Leased:
			if f.Subscriber == sub {
				fmt.Fprintf(&out, "%6d leased place %d key %v up to %d epoch %d\n", l.pos, f.Place, f.Key == key, f.UpTo, f.Lease.Epoch)
			}
		case *delivery.Moved:
			if f.Row.Subscriber == sub && f.Row.Key == key {
				fmt.Fprintf(&out, "%6d moved %s place %d seq %d first %d next %d %s block %v unblock %v epoch %d at %s\n", l.pos, q.state.events[f.Row.Event].ID,
					f.Row.Place, f.Row.Seq, f.Row.First, f.Next, f.Reason, f.Block, f.Unblock, f.Lease.Epoch, f.At.Format("05.000"))
			}
		case *delivery.HealthChanged:
			if f.Subscriber == sub {
				fmt.Fprintf(&out, "%6d health %s\n", l.pos, f.Health.Breaker)
			}
		}
	}
	return out.String()
}

func (q *fakeQueue) setFailing(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failing = err
}

// reopen makes a failed queue ready: with a new lease, so that nothing that was
// decided before can come in after something that was refused.
func (q *fakeQueue) reopen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failing = nil
	q.lease.Epoch++
}
