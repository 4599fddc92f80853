package sched

import (
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// class is the budget an attempt is charged to.
type class int32

const (
	classFast class = iota // known to answer in time
	classNew               // nothing is known yet
	classSlow              // recent attempts took too long, or one that is in flight does
	classOwn               // a slot that its subscriber reserves
	classes
)

// tenant is what the dispatcher knows about a tenant with work or a
// reservation. Fields are guarded by the dispatcher's mutex.
type tenant struct {
	num      delivery.TenantNum
	record   atomic.Pointer[delivery.Tenant]
	actors   int // actors that point here
	inFlight int

	kept        int // what it was allotted of what its record reserves
	sharesAsked int // slots that its subscribers reserve
	sharesFree  int // slots of their shares that are not in use

	limitedUntil instant     // its token bucket is empty until then
	scarce       atomic.Bool // it ran out of tokens lately: one asks at a time, in turn
	asking       int         // attempts that ask for a token
	granted      int         // tokens got in a row
	linked       atomic.Bool // its lines take part in the fair queues; written under the mutex
	ownLinked    atomic.Bool // so do those of subscribers with free slots of their own
	over         atomic.Bool // it has more than its bound leaves beside its subscribers' free slots
	lines        [classes][delivery.Lanes]tenantLine
}

func newTenant(record *delivery.Tenant) *tenant {
	t := &tenant{num: record.Num}
	t.linked.Store(true)
	t.ownLinked.Store(true)
	t.record.Store(record)
	for c := range t.lines {
		for l := range t.lines[c] {
			t.lines[c][l].tenant = t
		}
	}
	return t
}

func (t *tenant) weight() int { return max(1, t.record.Load().Weight) }

// unused is the part of its reservation that it does not use. What its
// subscribers reserve is part of it.
func (t *tenant) unused() int { return max(0, t.kept-t.inFlight-t.sharesFree) }

// promised is what the node keeps for it: its own reservation, or those of its
// subscribers where they are more.
func (t *tenant) promised() int { return max(t.record.Load().Reserved, t.sharesAsked) }

// weigh notes whether it has too much in flight. What changes that calls it.
func (t *tenant) weigh() {
	most := t.record.Load().MaxShare
	t.over.Store(most > 0 && t.inFlight+t.sharesFree > most)
}

// waits reports whether it has no token for one more attempt.
func (t *tenant) waits(now instant) bool {
	return now.before(t.limitedUntil) || t.asking > 0 && t.scarce.Load()
}

// link says whether its lines of a class take part in the fair queues.
func (t *tenant) link(c class) *atomic.Bool {
	if c == classOwn {
		return &t.ownLinked
	}
	return &t.linked
}

// tenantLine is a tenant's actors that are ready in one lane of one class.
type tenantLine struct {
	tenant     *tenant
	actors     actorList
	deficit    int
	ring       *ring // the ring it is linked into, nil = none
	next, prev *tenantLine
}

// ring is the tenants that have ready actors in one lane.
type ring struct{ cur *tenantLine }

func (r *ring) link(l *tenantLine) {
	if l.ring != nil {
		return
	}
	l.ring = r
	if r.cur == nil {
		l.next, l.prev, r.cur = l, l, l
		return
	}
	// Before the current one: last in this round.
	l.next, l.prev = r.cur, r.cur.prev
	l.prev.next, l.next.prev = l, l
}

func (l *tenantLine) unlink() {
	r := l.ring
	if r == nil {
		return
	}
	if l.next == l {
		r.cur = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if r.cur == l {
			r.cur = l.next
		}
	}
	l.ring, l.next, l.prev = nil, nil, nil
}

// fairQueue orders ready actors: lanes by pickLane, inside a lane tenants by
// deficit round robin with their weights, inside a tenant actors in turn. An
// attempt costs one, whatever its payload: attempts are bounded by latency, not
// by bytes. Every operation takes constant time.
type fairQueue struct {
	lanes     [delivery.Lanes]ring
	streak    int
	agedEvery int
	ageAfter  time.Duration
}

// peek picks the next line; nil when none is linked.
func (q *fairQueue) peek(now instant) (*tenantLine, pickWhy) {
	var views [delivery.Lanes]laneView
	for i := range q.lanes {
		if l := q.lanes[i].cur; l != nil {
			views[i] = laneView{waiting: true, priority: delivery.Priority(i), since: l.actors.head.node.since} //nolint:gosec // three lanes
		}
	}
	i, why := pickLane(views, q.streak, q.agedEvery, q.ageAfter, now)
	if why == pickNothing {
		return nil, why
	}
	return q.lanes[i].cur, why
}

// picked counts a pick that led to an attempt.
func (q *fairQueue) picked(why pickWhy) {
	if why == pickAged {
		q.streak = 0
	} else {
		q.streak++
	}
}

// take takes a line's first actor and charges the line for it.
func (l *tenantLine) take() *actor {
	if l.deficit <= 0 {
		l.deficit += l.tenant.weight()
	}
	a := l.actors.head
	l.actors.remove(a)
	l.deficit--
	switch r := l.ring; {
	case l.actors.head == nil:
		l.deficit = 0
		l.unlink()
	case l.deficit <= 0 && r != nil && r.cur == l:
		r.cur = l.next
	}
	return a
}

// node is an actor's place in the fair queue.
type node struct {
	line       *tenantLine // nil = not queued
	since      instant
	lane       delivery.Priority
	class      class
	next, prev *actor
}

// actorList is an intrusive list of actors.
type actorList struct {
	head, tail *actor
	n          int
}

// insert keeps the list in the order of since. Almost always that is the end; an
// actor that comes back with an old ticket finds its place near the front, among
// few others that came back.
func (l *actorList) insert(a *actor) {
	l.n++
	if l.tail == nil || l.tail.node.since <= a.node.since {
		l.link(a, l.tail, nil)
		return
	}
	at := l.head
	for at.node.since <= a.node.since {
		at = at.node.next
	}
	l.link(a, at.node.prev, at)
}

func (l *actorList) link(a, prev, next *actor) {
	a.node.prev, a.node.next = prev, next
	if prev != nil {
		prev.node.next = a
	} else {
		l.head = a
	}
	if next != nil {
		next.node.prev = a
	} else {
		l.tail = a
	}
}

func (l *actorList) remove(a *actor) {
	l.n--
	if a.node.prev != nil {
		a.node.prev.node.next = a.node.next
	} else {
		l.head = a.node.next
	}
	if a.node.next != nil {
		a.node.next.node.prev = a.node.prev
	} else {
		l.tail = a.node.prev
	}
	a.node.next, a.node.prev = nil, nil
}
