package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// recorder keeps the facts that a store folds, encoded, with their positions.
type recorder struct {
	mu    sync.Mutex
	facts []recorded
}

type recorded struct {
	pos   delivery.Position
	bytes []byte
}

func (r *recorder) config(c *Config) { c.record = r.add }

func (r *recorder) add(pos delivery.Position, fact delivery.Fact) {
	b, err := AppendFact(nil, fact)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = append(r.facts, recorded{pos, b})
}

func (r *recorder) list() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.facts)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.facts)
}

func (r *recorder) last() delivery.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts[len(r.facts)-1].pos
}

// foldAll folds recorded facts into an empty database and returns its rows.
func foldAll(tb testing.TB, facts []recorded, partitions int, split bool) []string {
	tb.Helper()
	db := foldInto(tb, facts, partitions, split)
	defer func() { noErr(tb, db.Close()) }()
	return dump(tb, db)
}

// foldInto folds recorded facts into an empty database, partition by partition
// where split is set.
func foldInto(tb testing.TB, facts []recorded, partitions int, split bool) *pebble.DB {
	tb.Helper()
	db, err := pebble.Open("fold", &pebble.Options{FS: vfs.NewMem(), Merger: merger, Logger: quietPebble{}})
	noErr(tb, err)
	for part := range slices.Chunk(facts, 10_000) {
		foldPart(tb, db, part, partitions, split)
	}
	return db
}

func foldPart(tb testing.TB, db *pebble.DB, facts []recorded, partitions int, split bool) {
	tb.Helper()
	b := db.NewBatch()
	all := fold{partitions: partitions, all: true}
	for _, f := range facts {
		fact, err := DecodeFact(f.bytes)
		noErr(tb, err)
		if !split {
			noErr(tb, all.add(b, f.pos, fact))
			continue
		}
		noErr(tb, Apply(b, partitions, delivery.PartitionShared, f.pos, fact))
		for p := range partitions {
			noErr(tb, Apply(b, partitions, delivery.Partition(p), f.pos, fact))
		}
	}
	noErr(tb, all.flush(b))
	noErr(tb, db.Apply(b, pebble.NoSync))
}

// row is a row of a database as it is compared and shown.
type row struct{ key, value []byte }

func (r row) String() string { return fmt.Sprintf("%c %x = %x", r.key[0], r.key[1:], r.value) }

// rowsOf yields all rows but those of the store itself and its configuration. A
// row is valid until the next one.
func rowsOf(tb testing.TB, db *pebble.DB) iter.Seq[row] {
	return func(yield func(row) bool) {
		it, err := db.NewIter(nil)
		noErr(tb, err)
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			if k := it.Key()[0]; k == prefixMeta || k == prefixConfig {
				continue
			}
			v, err := it.ValueAndErr()
			noErr(tb, err)
			if !yield(row{it.Key(), v}) {
				return
			}
		}
		noErr(tb, it.Error())
	}
}

func dump(tb testing.TB, db *pebble.DB) (rows []string) {
	tb.Helper()
	for r := range rowsOf(tb, db) {
		rows = append(rows, r.String())
	}
	return rows
}

// sameDB fails the test where the rows of two databases differ, and returns how
// many there are.
func sameDB(tb testing.TB, what string, got, want *pebble.DB) (n int) {
	tb.Helper()
	next, stop := iter.Pull(rowsOf(tb, want))
	defer stop()
	for g := range rowsOf(tb, got) {
		w, ok := next()
		if !ok || !bytes.Equal(g.key, w.key) || !bytes.Equal(g.value, w.value) {
			tb.Fatalf("%s: row %d is\n\t%s\nwant %v\n\t%s", what, n, g, ok, w)
		}
		n++
	}
	if w, ok := next(); ok {
		tb.Fatalf("%s: row %d is missing: %s", what, n, w)
	}
	return n
}

func (b *bench) dump() (rows []string) {
	b.tb.Helper()
	noErr(b.tb, b.view(func(db *pebble.DB) error {
		rows = dump(b.tb, db)
		return nil
	}))
	return rows
}

// sameRows fails the test where two dumps differ.
func sameRows(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			tb.Fatalf("%s: row %d of %d is\n\t%s\nwant (of %d)\n\t%s", what, i, len(got), g, len(want), w)
		}
	}
}

// simSubs are the subscribers of a simulation; two of them share a partition.
var simSubs = []delivery.SubscriberNum{1, 2, 3, 44, 555, 70_000_000_000}

// simDelivery is what the model knows of a delivery.
type simDelivery struct {
	ref      DeliveryRef
	row      *delivery.Row // nil = nothing is pending
	state    delivery.State
	attempts int
	dead     bool
	died     time.Time // the last time
}

// simSpan names the rows that one watermark is about.
type simSpan struct {
	sub   delivery.SubscriberNum
	place delivery.Place
	which uint64
}

func spanOf(r *delivery.Row) simSpan {
	return simSpan{r.Subscriber, r.Place, leaseSpan(r.Place, r.Lane, r.Key)}
}

// leasedBy is the epoch that a row was last handed out in.
func (s *sim) leasedBy(r *delivery.Row) delivery.Epoch { return leasedBy(r, s.marks[spanOf(r)]) }

// sim plays the scheduler with random decisions against a store and knows what
// must come out. Every operation is durable before the next one begins.
type sim struct {
	b       *bench
	rec     *recorder
	rng     *rand.Rand
	all     []*simDelivery
	pending []*simDelivery // and some that no longer are
	blocked map[delivery.SubscriberNum]map[delivery.KeyHash]delivery.Seq
	marks   map[simSpan][]watermark // all that were not taken back
	gone    map[delivery.EventKey]bool
	ids     []string
	n       uint64
	now     time.Time
	err     error // the first one, where errors are injected
}

func newSim(b *bench, rec *recorder, seed uint64) *sim {
	return &sim{
		b: b, rec: rec, rng: rand.New(rand.NewPCG(seed, 1)), now: time.UnixMilli(1_700_000_000_000).UTC(),
		blocked: map[delivery.SubscriberNum]map[delivery.KeyHash]delivery.Seq{},
		marks:   map[simSpan][]watermark{}, gone: map[delivery.EventKey]bool{},
	}
}

// step does one random thing.
func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.rng.IntN(40)) * time.Second)
	switch p := s.rng.IntN(100); {
	case p < 35:
		s.publish()
	case p < 70:
		s.outcome()
	case p < 76:
		s.lease()
	case p < 84:
		s.replay()
	case p < 87:
		s.purge()
	case p < 90:
		s.expunge()
	case p < 92:
		s.drop()
	case p < 96:
		sub := s.sub()
		s.commit(&delivery.HealthChanged{Lease: s.b.Lease(), Subscriber: sub, Health: delivery.Health{
			Breaker: delivery.BreakerOpen, OpenUntil: s.now, Opens: s.rng.IntN(9), LastSuccess: s.now.Add(-time.Hour),
		}})
	default:
		s.batch()
	}
}

func (s *sim) sub() delivery.SubscriberNum { return simSubs[s.rng.IntN(len(simSubs))] }

func (s *sim) commit(facts ...delivery.Fact) bool {
	if err := s.b.commitNow(facts...); err != nil {
		s.fail(err)
		return false
	}
	return true
}

func (s *sim) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// random makes an event nobody has seen.
func (s *sim) random() *delivery.Published {
	s.n++
	id := fmt.Sprintf("evt_%d", s.n)
	x := eventAt(s.now, s.n, id)
	x.Event.OrderingKey = []string{"", "", "k1", "k2"}[s.rng.IntN(4)]
	if s.rng.IntN(8) == 0 {
		x.Dedupe.Source, x.Dedupe.Body = "github", true
	}
	due := time.Time{}
	if s.rng.IntN(6) == 0 {
		due = s.now.Add(time.Duration(s.rng.IntN(1e6)) * time.Millisecond)
		x.Event.DeliverAt = due
	}
	for _, i := range s.rng.Perm(len(simSubs))[:s.rng.IntN(4)] {
		t := delivery.Target{Subscriber: simSubs[i], Lane: delivery.PriorityNormal, Due: due, Key: delivery.HashKey(x.Event.OrderingKey)}
		if t.Key == 0 {
			t.Lane = delivery.Priority(s.rng.IntN(delivery.Lanes))
		}
		t.Leased = s.rng.IntN(3) == 0
		x.Targets = append(x.Targets, t)
	}
	s.ids = append(s.ids, id)
	return x
}

func (s *sim) publish() {
	x := s.random()
	again := len(s.ids) > 1 && s.rng.IntN(10) == 0
	if again {
		// Its content differs in nothing but the key.
		x = eventAt(s.now, s.n, s.ids[s.rng.IntN(len(s.ids)-1)])
	}
	r := s.b.Publish(context.Background(), []*delivery.Published{x})[0]
	if r.Err != nil {
		if again && errors.Is(r.Err, delivery.ErrConflict) {
			s.b.tb.Errorf("conflict for %q: %v", x.Event.ID, r.Err)
		}
		s.fail(r.Err)
		return
	}
	if !r.Deduplicated {
		s.published(x, r.Position)
	}
}

func (s *sim) batch() {
	var list []*delivery.Published
	for range 3 {
		list = append(list, s.random())
	}
	for i, r := range s.b.Publish(context.Background(), list) {
		if r.Err != nil {
			s.fail(r.Err)
			continue
		}
		s.published(list[i], r.Position)
	}
}

func (s *sim) published(x *delivery.Published, pos delivery.Position) {
	for _, t := range x.Targets {
		row := &delivery.Row{
			Subscriber: t.Subscriber, Event: x.Event.Key, Lane: t.Lane, Seq: pos, Key: t.Key, First: pos,
			EnteredAt: x.Event.Key.Time(), Due: t.Due,
		}
		d := &simDelivery{ref: DeliveryRef{x.Event.Key, t.Subscriber}, row: row, state: delivery.StateReceived}
		if !t.Due.IsZero() {
			row.Place = delivery.PlaceRetry
		}
		if t.Leased {
			row.LeasedBy, d.state = x.Lease.Epoch, delivery.StateLeased
		}
		s.all, s.pending = append(s.all, d), append(s.pending, d)
	}
}

// pick returns a random delivery that passes a test, or nil.
func (s *sim) pick(ok func(*simDelivery) bool) *simDelivery {
	for range 32 { // mostly there are many
		if len(s.all) == 0 {
			return nil
		}
		if d := s.all[s.rng.IntN(len(s.all))]; ok(d) {
			return d
		}
	}
	var list []*simDelivery
	for _, d := range s.all {
		if ok(d) {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.rng.IntN(len(list))]
}

// pickPending returns a random delivery that is pending, or nil.
func (s *sim) pickPending() *simDelivery {
	for len(s.pending) > 0 {
		i, last := s.rng.IntN(len(s.pending)), len(s.pending)-1
		d := s.pending[i]
		if d.row != nil {
			return d
		}
		s.pending[i] = s.pending[last]
		s.pending = s.pending[:last]
	}
	return nil
}

// outcome moves a random pending row.
func (s *sim) outcome() {
	d := s.pickPending()
	if d == nil {
		return
	}
	row := *d.row
	m := s.b.moved(row, delivery.NextDelivered, delivery.ReasonDelivered, 200)
	m.At = s.now
	to := delivery.StateDelivered
	switch p := s.rng.IntN(10); {
	case p < 3:
		m.Next, m.Reason, m.Due = delivery.NextRetry, delivery.ReasonStatusRetry, s.now.Add(time.Duration(s.rng.IntN(1e5))*time.Millisecond)
		m.Attempt.Result.Status, m.Attempt.Result.Body = 503, []byte("busy")
		m.Block = row.Key != 0
		to = delivery.StateRetrying
	case p < 5:
		m.Next, m.Reason, m.Signature = delivery.NextDead, delivery.ReasonExhausted, "503"
		to = delivery.StateDead
	case p < 6:
		m.Next, m.Reason, m.Attempt = delivery.NextCanceled, delivery.ReasonEventDeleted, nil
		to = delivery.StateCanceled
	case p < 7 && row.Key != 0:
		m.Next, m.Reason, m.Attempt = delivery.NextParked, delivery.ReasonOrder, nil
		to = d.state
	}
	if to == delivery.StateDelivered && row.Key != 0 {
		m.Unblock = true
	}
	if by := s.leasedBy(&row); by != 0 && by < s.b.Lease().Epoch && m.Attempt != nil {
		m.Prior = &delivery.Attempt{
			Number: row.Attempts + 1, Lease: delivery.Lease{Node: "n1", Epoch: by},
			Result: delivery.Result{Cause: delivery.CauseRecovered}, Outcome: delivery.Outcome{Class: delivery.ClassUnknown, Reason: delivery.ReasonRecovered},
		}
		m.Attempt.Number++
	}
	if !s.commit(m) {
		return
	}
	s.moved(d, m, to)
}

func (s *sim) moved(d *simDelivery, m *delivery.Moved, to delivery.State) {
	row := *d.row
	pos := s.rec.last()
	if to == delivery.StateDead && s.gone[row.Event] {
		to = delivery.StateCanceled // nothing is left to replay
		if m.Next != delivery.NextCanceled || m.Reason != delivery.ReasonEventDeleted {
			s.b.tb.Errorf("a deleted event's delivery died: %+v", m)
		}
	}
	if s.gone[row.Event] && !to.Terminal() {
		to = delivery.StateCanceled // in all but its row
	}
	d.state, d.attempts = to, attemptsAfter(m)
	switch m.Next {
	case delivery.NextRetry:
		row.Place, row.Due = delivery.PlaceRetry, m.Due.Truncate(time.Millisecond)
	case delivery.NextParked:
		row.Place, row.Due = delivery.PlaceParked, time.Time{}
	default:
		d.row = nil
	}
	if d.dead = m.Next == delivery.NextDead; d.dead {
		d.died = diedAt(m.At, row.Event)
	}
	if d.row != nil {
		row.Seq, row.LeasedBy, row.Attempts = pos, 0, d.attempts
		d.row = &row
	}
	keys := s.blocked[row.Subscriber]
	if keys == nil {
		keys = map[delivery.KeyHash]delivery.Seq{}
		s.blocked[row.Subscriber] = keys
	}
	if m.Block {
		keys[row.Key] = m.Row.First
	}
	if m.Unblock {
		delete(keys, row.Key)
		delete(s.marks, simSpan{row.Subscriber, delivery.PlaceParked, uint64(row.Key)})
	}
}

// lease covers the rows up to a random one with a watermark, or takes back what
// was covered.
func (s *sim) lease() {
	d := s.pickPending()
	if d == nil {
		return
	}
	f := &delivery.Leased{
		Lease: s.b.Lease(), Subscriber: d.row.Subscriber, Place: d.row.Place, Lane: d.row.Lane, Key: d.row.Key,
		Due: d.row.Due, UpTo: d.row.Seq,
	}
	back := s.rng.IntN(4) == 0
	if back {
		f.Due, f.UpTo = time.Time{}, 0
	}
	if !s.commit(f) {
		return
	}
	span := spanOf(d.row)
	if back {
		s.marks[span] = slices.DeleteFunc(s.marks[span], func(w watermark) bool { return w.epoch == f.Lease.Epoch })
		return
	}
	// What a later one of the same epoch covers, too, says nothing more.
	s.marks[span] = slices.DeleteFunc(s.marks[span], func(w watermark) bool {
		return w.epoch == f.Lease.Epoch && (w.due.Before(f.Due) || w.due.Equal(f.Due) && w.upTo <= f.UpTo)
	})
	s.marks[span] = append(s.marks[span], watermark{f.Lease.Epoch, f.Due, f.UpTo, s.rec.last()})
}

func (s *sim) replay() {
	d := s.pick(func(d *simDelivery) bool { return d.row == nil })
	if d == nil {
		return
	}
	force := s.rng.IntN(2) == 0
	sub := &delivery.Subscriber{Num: d.ref.Subscriber, ID: "s"}
	err := s.b.Replay(context.Background(), s.now, []Replay{{Event: d.ref.Event, Subscriber: sub, Force: force}})[0]
	allowed := !s.gone[d.ref.Event] && (d.dead || d.state == delivery.StateDelivered && force)
	if err != nil {
		refused := errors.Is(err, delivery.ErrState) || errors.Is(err, delivery.ErrEventGone)
		if allowed || !refused {
			s.fail(err)
		}
		return
	}
	if !allowed {
		s.b.tb.Errorf("replay of %+v was allowed", d)
		return
	}
	pos := s.rec.last()
	row := delivery.Row{
		Subscriber: d.ref.Subscriber, Event: d.ref.Event, Lane: delivery.PriorityNormal, Seq: pos, First: pos,
		Attempts: d.attempts, Replayed: true, Base: d.attempts, EnteredAt: s.now,
	}
	if e, err := s.b.Event(context.Background(), d.ref.Event); err == nil {
		row.Lane, row.Key = sub.Lane(e), sub.KeyFor(e.OrderingKey)
	}
	d.row, d.dead, d.state = &row, false, delivery.StateLeased
	s.pending = append(s.pending, d)
}

func (s *sim) purge() {
	d := s.pick(func(d *simDelivery) bool { return d.row == nil })
	if d == nil {
		return
	}
	err := s.b.Purge(context.Background(), s.now, []DeliveryRef{d.ref})[0]
	if !d.dead && errors.Is(err, delivery.ErrNoDelivery) {
		return
	}
	if err != nil {
		s.fail(err)
		return
	}
	d.dead = false
}

func (s *sim) expunge() {
	d := s.pick(func(d *simDelivery) bool { return !s.gone[d.ref.Event] })
	if d == nil || s.rng.IntN(2) == 0 {
		return
	}
	if err := s.b.Expunge(context.Background(), s.now, d.ref.Event, delivery.ReasonEventDeleted); err != nil {
		s.fail(err)
		return
	}
	s.gone[d.ref.Event] = true
	for _, o := range s.all {
		if o.ref.Event == d.ref.Event {
			o.dead = false
			if !o.state.Terminal() {
				o.state = delivery.StateCanceled
			}
		}
	}
}

func (s *sim) drop() {
	if s.rng.IntN(3) != 0 {
		return
	}
	sub := s.sub()
	if err := s.b.DropSubscriber(context.Background(), s.now, sub, delivery.ReasonSubscriberDeleted); err != nil {
		s.fail(err)
		return
	}
	for _, d := range s.all {
		if d.ref.Subscriber == sub {
			if d.row != nil {
				d.row, d.state = nil, delivery.StateCanceled
			}
			d.dead = false
		}
	}
	delete(s.blocked, sub)
	maps.DeleteFunc(s.marks, func(span simSpan, _ []watermark) bool { return span.sub == sub })
}

func rowOrder(a, b delivery.Row) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Seq, b.Seq))
}

// check compares what the store shows with the model.
func (s *sim) check() {
	tb := s.b.tb
	tb.Helper()
	s.checkRows()
	s.checkDead()
	s.checkDeliveries(s.all)
}

// checkDead reads the lists of dead letters, page by page: what died last is first.
func (s *sim) checkDead() {
	tb := s.b.tb
	tb.Helper()
	filters := []Filter{{Tenant: 7}, {Tenant: 7, DiedBefore: s.now.Add(-time.Hour), Since: s.now.Add(-20 * time.Hour)}}
	for _, sub := range simSubs {
		filters = append(filters, Filter{Subscriber: sub})
	}
	for _, f := range filters {
		var want []*simDelivery
		for _, d := range s.all {
			if d.dead && (f.Subscriber == 0 || f.Subscriber == d.ref.Subscriber) && f.inTime(d.ref.Event) &&
				(f.DiedBefore.IsZero() || d.died.Before(f.DiedBefore)) {
				want = append(want, d)
			}
		}
		slices.SortFunc(want, func(a, b *simDelivery) int {
			return -cmp.Or(a.died.Compare(b.died), cmp.Compare(a.ref.Subscriber, b.ref.Subscriber), bytes.Compare(a.ref.Event[:], b.ref.Event[:]))
		})
		var got []Summary
		for cursor, first := "", true; first || cursor != ""; first = false {
			page, err := s.b.DeadLetters(context.Background(), f, cursor, 1+s.rng.IntN(maxLimit))
			noErr(tb, err)
			got, cursor = append(got, page.Items...), page.Next
		}
		if len(got) != len(want) {
			tb.Fatalf("%+v lists %d dead letters, want %d", f, len(got), len(want))
		}
		for i, sum := range got {
			if ref := (DeliveryRef{sum.Event, sum.Subscriber}); ref != want[i].ref || sum.Err != nil {
				tb.Fatalf("%+v: dead letter %d is %+v (%v), want %+v", f, i, ref, sum.Err, want[i].ref)
			}
		}
	}
}

// checkSome is check, of the deliveries a random part.
func (s *sim) checkSome(n int) {
	s.b.tb.Helper()
	s.checkRows()
	if len(s.all) <= n {
		s.checkDeliveries(s.all)
		return
	}
	from := s.rng.IntN(len(s.all) - n)
	s.checkDeliveries(s.all[from : from+n])
	s.checkDeliveries(s.all[len(s.all)-n:])
}

func (s *sim) checkRows() {
	tb := s.b.tb
	tb.Helper()
	pending := 0
	for _, sub := range simSubs {
		var want []delivery.Row
		for _, d := range s.all {
			if d.row != nil && d.ref.Subscriber == sub {
				row := *d.row
				row.LeasedBy = s.leasedBy(&row)
				want = append(want, row)
			}
		}
		pending += len(want)
		got := s.rows(sub)
		order := func(a, b delivery.Row) int { return cmp.Compare(a.Seq, b.Seq) }
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			tb.Fatalf("subscriber %d has rows\n\t%+v\nwant\n\t%+v", sub, got, want)
		}
		keys, err := s.b.BlockedKeys(sub, 100)
		noErr(tb, err)
		if len(keys) != len(s.blocked[sub]) {
			tb.Fatalf("subscriber %d: %d blocked keys, want %d", sub, len(keys), len(s.blocked[sub]))
		}
		for key, head := range s.blocked[sub] {
			if got, ok, err := s.b.Blocked(sub, key); err != nil || !ok || got != head {
				tb.Fatalf("subscriber %d: head of %d is %d %v %v, want %d", sub, key, got, ok, err, head)
			}
		}
	}
	if open := s.b.openCount(); open != int64(pending) {
		tb.Fatalf("open counters sum up to %d, want %d", open, pending)
	}
}

func (s *sim) checkDeliveries(list []*simDelivery) {
	tb := s.b.tb
	tb.Helper()
	for _, d := range list {
		got, err := s.b.Delivery(context.Background(), d.ref.Event, d.ref.Subscriber)
		noErr(tb, err)
		if got.State != d.state || got.Attempts != d.attempts {
			tb.Fatalf("delivery %+v is %v after %d attempts, want %v after %d", d.ref, got.State, got.Attempts, d.state, d.attempts)
		}
		for i, e := range got.Timeline[1:] {
			if from := got.Timeline[i].State; from != e.State && !from.CanMove(e.State) {
				tb.Fatalf("delivery %+v went from %v to %v", d.ref, from, e.State)
			}
		}
		_, _, err = s.b.DeadLetter(context.Background(), d.ref.Event, d.ref.Subscriber)
		if dead := err == nil; dead != d.dead {
			tb.Fatalf("delivery %+v: dead letter %v (%v), want %v", d.ref, dead, err, d.dead)
		}
	}
}

// rows reads all of a subscriber's rows, in pages of one size.
func (s *sim) rows(sub delivery.SubscriberNum) []delivery.Row {
	tb := s.b.tb
	var out []delivery.Row
	page := 3 + s.rng.IntN(500)
	for lane := range delivery.Priority(delivery.Lanes) {
		for after := delivery.Seq(0); ; {
			rows, err := s.b.Ready(sub, lane, after, page)
			noErr(tb, err)
			out = append(out, rows...)
			if len(rows) < page {
				break
			}
			after = rows[page-1].Seq
		}
	}
	var due time.Time
	for after := delivery.Seq(0); ; {
		rows, err := s.b.Retrying(sub, due, after, page)
		noErr(tb, err)
		out = append(out, rows...)
		if len(rows) < page {
			break
		}
		due, after = rows[page-1].Due, rows[page-1].Seq
	}
	for _, key := range []string{"k1", "k2"} {
		rows, err := s.b.Parked(sub, delivery.HashKey(key), 0, 1<<30)
		noErr(tb, err)
		out = append(out, rows...)
	}
	return out
}

// openCount is the sum of the open counters.
func (b *bench) openCount() (sum int64) {
	noErr(b.tb, b.view(func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixOpen}, UpperBound: []byte{prefixOpen + 1}})
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			n, err := decodeCounter(v)
			if err != nil {
				return err
			}
			sum += n
		}
		return it.Error()
	}))
	return sum
}
