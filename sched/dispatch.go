package sched

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// slot is the right to have one attempt in flight. A worker keeps it from
// attempt to attempt while nobody else waits.
type slot struct {
	tenant  *tenant
	actor   *actor
	granted class        // the budget it was given from
	class   class        // the budget it is charged to unless isOwn; guarded by the dispatcher's mutex
	share   *share       // of its subscriber; guarded likewise, as is place
	place   int          // in share.slots
	asking  bool         // it asks for a token of its tenant; guarded likewise
	started atomic.Int64 // instant at which the current attempt began
	moved   atomic.Bool  // it was moved to the slow budget

	checkAt    instant // when it is looked at for slowness
	listed     bool
	next, prev *slot
}

var slots = sync.Pool{New: func() any { return new(slot) }}

// dispatcher shares attempts in flight among actors that are ready.
//
// Invariant: when an attempt starts, no class is beyond its bound, nor all
// together beyond most: slow and new attempts take at most their budgets from
// the others. An attempt that turns out to be slow is moved to the slow budget
// even when that is full: it cannot be called back, and must not hold another
// place. What is beyond the slow budget is not counted against most.
//
// Invariant: what is reserved for some tenants and subscribers leaves a quarter
// to all, however reservations were configured. What is set aside as subscribers'
// own is taken from the budgets of slow and new attempts in proportion.
//
// Invariant: a tenant line is linked into a ring exactly if it has actors and
// its tenant is linked. contenders counts the actors of linked lines.
type dispatcher struct {
	most       int
	budget     [classes]int // bound, before shares are taken from it
	slowAfter  time.Duration
	wakeSlow   func(at instant) // asks for a call of findSlow
	wakeTenant func(t delivery.TenantNum, at instant)
	gate       func() bool // false = nothing may start now

	contenders [classes]atomic.Int64
	// vacant has bit c set while an attempt of class c may find room, heldUp while
	// only the node's bound keeps it from that. With over, more is in flight than the
	// node's bound leaves beside what is reserved. They are written under the mutex,
	// by whatever changes what is in flight.
	vacant, heldUp atomic.Uint32
	over           atomic.Bool

	sharing atomic.Int64 // len(shares)

	mu        sync.Mutex
	bound     [classes]int
	inFlight  [classes]int
	promised  int // sum over tenants of what is reserved for them and their subscribers
	unused    int // sum of tenants' unused reservations
	shares    map[delivery.SubscriberNum]*share
	scaled    bool // promised is more than there is: everybody got a part
	queues    [classes]fairQueue
	turn      class
	tenants   map[delivery.TenantNum]*tenant
	reserving []*tenant // tenants with a reservation; few
	watched   struct{ head, tail *slot }
	stopping  bool
	drained   chan struct{}
}

func newDispatcher(cfg Config) *dispatcher {
	d := &dispatcher{
		most: cfg.MaxInFlight, slowAfter: cfg.SlowAfter,
		budget:  [classes]int{classFast: cfg.MaxInFlight, classNew: cfg.MaxNew, classSlow: cfg.MaxSlow},
		tenants: map[delivery.TenantNum]*tenant{}, shares: map[delivery.SubscriberNum]*share{}, drained: make(chan struct{}),
	}
	d.bound = d.budget
	for c := range d.queues {
		d.queues[c].agedEvery, d.queues[c].ageAfter = cfg.AgedEvery, cfg.AgeAfter
	}
	d.vacancyLocked()
	return d
}

// enqueue makes an actor compete for a slot, with those of its tenant in the
// order of since. The caller holds the actor's lock and knows that it is not
// queued.
func (d *dispatcher) enqueue(a *actor, lane delivery.Priority, since instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.node.lane, a.node.since = lane, since
	d.insertLocked(a)
}

func (d *dispatcher) insertLocked(a *actor) {
	a.node.class = d.classOfLocked(a)
	if sh := d.shareOfLocked(a.num); sh != nil {
		sh.queued = a
	}
	line := &a.tenant.lines[a.node.class][a.node.lane]
	a.node.line = line
	line.actors.insert(a)
	if a.tenant.link(a.node.class).Load() {
		d.contenders[a.node.class].Add(1)
		d.queues[a.node.class].lanes[a.node.lane].link(line)
	}
}

// promote moves a queued actor to a higher lane.
func (d *dispatcher) promote(a *actor, lane delivery.Priority) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.node.line == nil || a.node.lane <= lane {
		return
	}
	d.removeLocked(a)
	a.node.lane = lane
	d.insertLocked(a)
}

// reclass lets a queued actor whose standing changed compete in its new class.
func (d *dispatcher) reclass(a *actor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.node.line != nil && a.node.class != d.classOfLocked(a) {
		d.removeLocked(a)
		d.insertLocked(a)
	}
}

// withdraw takes an actor out of the queue. It is false when the actor has just
// been picked: its claim will find that there is nothing.
func (d *dispatcher) withdraw(a *actor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.node.line == nil {
		return false
	}
	d.removeLocked(a)
	return true
}

func (d *dispatcher) removeLocked(a *actor) {
	line := a.node.line
	d.unqueuedLocked(a)
	line.actors.remove(a)
	if !line.tenant.link(a.node.class).Load() {
		return
	}
	d.contenders[a.node.class].Add(-1)
	if line.actors.head == nil {
		line.deficit = 0
		line.unlink()
	}
}

func (d *dispatcher) unqueuedLocked(a *actor) {
	a.node.line = nil
	if sh := d.shareOfLocked(a.num); sh != nil {
		sh.queued = nil
	}
}

// next picks an actor and gives it a slot; nil when nobody may run.
func (d *dispatcher) next(now instant) (*actor, *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping || !d.gate() {
		return nil, nil
	}
	// In turns, so that no class that has room waits for another to be idle; once
	// more where an actor was found to belong to a class that had its turn.
	for left := classes; left > 0; left-- {
		c := d.turn
		d.turn = (d.turn + 1) % classes
		if !d.roomLocked(c) {
			continue
		}
		a, moved := d.popLocked(c, now)
		if a != nil {
			return a, d.occupyLocked(a, a.node.class, now)
		}
		if moved {
			left = classes
		}
	}
	return nil, nil
}

// vacancyLocked notes which classes have room. What changes that calls it.
func (d *dispatcher) vacancyLocked() {
	var vacant, heldUp uint32
	for c := range classes {
		switch {
		case d.roomLocked(c):
			vacant |= 1 << c
		case d.inFlight[c] < d.bound[c]:
			heldUp |= 1 << c
		}
	}
	d.vacant.Store(vacant)
	d.heldUp.Store(heldUp)
	d.over.Store(d.chargedLocked()+d.keptLocked() > d.most)
}

// mayStart reports whether somebody waits for a slot where there is room.
func (d *dispatcher) mayStart() bool { return d.contendIn(d.vacant.Load()) }

// wanted reports whether a worker has to give its slot back: somebody waits for it,
// of the same class or of any whose own budget is not used up while the node is
// full, or it is to be kept free for those who reserve it.
func (d *dispatcher) wanted(sl *slot) bool {
	return d.over.Load() || d.contendIn(d.heldUp.Load()|1<<sl.granted)
}

func (d *dispatcher) contendIn(bits uint32) bool {
	for c := range classes {
		if bits&(1<<c) != 0 && d.contenders[c].Load() > 0 {
			return true
		}
	}
	return false
}

// roomLocked reports whether an attempt of a class may start at all.
func (d *dispatcher) roomLocked(c class) bool {
	return d.inFlight[c] < d.bound[c] && d.chargedLocked() < d.most &&
		(c == classOwn || d.unused > 0 || d.chargedLocked()+d.keptLocked() < d.most)
}

// chargedLocked is how much of the global bound is taken.
func (d *dispatcher) chargedLocked() int {
	return d.inFlight[classFast] + d.inFlight[classNew] + min(d.inFlight[classSlow], d.bound[classSlow]) + d.inFlight[classOwn]
}

// keptLocked is how many free slots are reserved.
func (d *dispatcher) keptLocked() int { return d.unused + d.bound[classOwn] - d.inFlight[classOwn] }

// roomOfLocked decides whether a tenant's attempt of a class may start.
func (d *dispatcher) roomOfLocked(t *tenant, c class, now instant) roomWhy {
	return roomView{
		class: c, inFlight: d.inFlight[c], bound: d.bound[c],
		charged: d.chargedLocked(), most: d.most, kept: d.keptLocked(),
		tenantWaits: t.waits(now), tenantInFlight: t.inFlight, tenantMost: t.record.Load().MaxShare,
		tenantKept: t.sharesFree, tenantUnused: t.unused(),
	}.decide()
}

// popLocked takes the next actor of a class whose tenant may run. Of a tenant
// that is short of tokens it may be one of another class. moved reports whether
// actors went to the queue of another class.
func (d *dispatcher) popLocked(c class, now instant) (a *actor, moved bool) {
	for {
		line, why := d.peekLocked(c, now)
		if line == nil {
			return nil, moved
		}
		a = line.actors.head
		if c != d.classOfLocked(a) {
			// Its standing changed while it waited: it waits on in the other queue.
			d.removeLocked(a)
			d.insertLocked(a)
			moved = true
			continue
		}
		switch room := d.roomOfLocked(line.tenant, c, now); {
		case room == fullTenant:
			d.detachLocked(line.tenant, true)
			d.detachLocked(line.tenant, false)
		case room == reservedInTenant:
			d.detachLocked(line.tenant, false)
		case !room.free():
			return nil, moved
		default:
			line = d.longestLocked(line, c, now)
			a = line.actors.head
			d.queues[a.node.class].picked(why)
			d.unqueuedLocked(a)
			line.take()
			d.contenders[a.node.class].Add(-1)
			return a, moved
		}
	}
}

// longestLocked returns the line of the same lane in which a tenant that is short
// of tokens has waited longest. Classes take turns, and so do tokens and refusals:
// in step they would give every token to one class and every refusal to another.
func (d *dispatcher) longestLocked(line *tenantLine, of class, now instant) *tenantLine {
	t := line.tenant
	if !t.scarce.Load() {
		return line
	}
	lane := line.actors.head.node.lane
	for c := range classes {
		other := &t.lines[c][lane]
		a := other.actors.head
		if c != of && a != nil && d.classOfLocked(a) == c && a.node.since.before(line.actors.head.node.since) &&
			t.link(c).Load() && d.roomOfLocked(t, c, now).free() {
			line = other
		}
	}
	return line
}

// peekLocked picks the next line. When what is left of the node's bound is
// reserved, that is a tenant which has not used up its reservation.
func (d *dispatcher) peekLocked(c class, now instant) (*tenantLine, pickWhy) {
	if c == classOwn || d.chargedLocked()+d.keptLocked() < d.most {
		return d.queues[c].peek(now)
	}
	for _, t := range d.reserving {
		if !t.linked.Load() || t.unused() == 0 {
			continue
		}
		for l := range t.lines[c] {
			if line := &t.lines[c][l]; line.actors.head != nil {
				return line, pickPriority
			}
		}
	}
	return nil, pickNothing
}

// detachLocked takes a tenant that is at one of its bounds out of the queues,
// so that its actors cost the others nothing: those that wait for a slot of their
// own, or all others.
func (d *dispatcher) detachLocked(t *tenant, own bool) {
	for c := range classes {
		if (c == classOwn) != own || !t.link(c).Load() {
			continue
		}
		for l := range t.lines[c] {
			line := &t.lines[c][l]
			d.contenders[c].Add(-int64(line.actors.n))
			line.unlink()
		}
	}
	if own {
		t.ownLinked.Store(false)
	} else {
		t.linked.Store(false)
	}
}

// attachLocked lets a tenant compete again.
func (d *dispatcher) attachLocked(t *tenant) {
	for c := range classes {
		if t.link(c).Load() {
			continue
		}
		for l := range t.lines[c] {
			if line := &t.lines[c][l]; line.actors.head != nil {
				d.contenders[c].Add(int64(line.actors.n))
				d.queues[c].lanes[l].link(line)
			}
		}
	}
	t.linked.Store(true)
	t.ownLinked.Store(true)
}

func (d *dispatcher) occupyLocked(a *actor, c class, now instant) *slot {
	s := slots.Get().(*slot) //nolint:errcheck // the pool's only type
	s.tenant, s.actor, s.class, s.granted = a.tenant, a, c, c
	if c == classOwn {
		s.class = a.class()
	}
	s.moved.Store(false)
	if s.asking = s.tenant.record.Load().RateLimit.PerSecond > 0; s.asking {
		s.tenant.asking++
	}
	s.begin(now)
	d.unused -= s.tenant.unused()
	d.enterLocked(s, d.shareOfLocked(a.num))
	s.tenant.inFlight++
	s.tenant.weigh()
	d.unused += s.tenant.unused()
	d.vacancyLocked()
	if s.class != classSlow {
		d.watchLocked(s, now.add(d.slowAfter))
	}
	return s
}

// begin starts the clock of an attempt.
func (s *slot) begin(now instant) { s.started.Store(int64(now)) }

// release gives a slot back.
func (d *dispatcher) release(s *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unwatchLocked(s)
	d.askedLocked(s)
	t := s.tenant
	d.unused -= t.unused()
	d.leaveLocked(s)
	t.inFlight--
	t.weigh()
	d.unused += t.unused()
	d.vacancyLocked()
	if t.limitedUntil == 0 {
		d.attachLocked(t)
	}
	d.dropTenantLocked(t)
	s.tenant, s.actor = nil, nil
	slots.Put(s)
	if d.stopping && d.totalLocked() == 0 {
		close(d.drained)
	}
}

// total is the number of attempts in flight.
func (d *dispatcher) total() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.totalLocked()
}

func (d *dispatcher) totalLocked() int {
	n := 0
	for _, c := range d.inFlight {
		n += c
	}
	return n
}

// contending is the number of actors that wait for a slot and may have one.
func (d *dispatcher) contending() int64 {
	var n int64
	for c := range d.contenders {
		n += d.contenders[c].Load()
	}
	return n
}

// stop lets nothing start any more and returns a channel that is closed when
// nothing is in flight.
func (d *dispatcher) stop() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopping {
		d.stopping = true
		if d.totalLocked() == 0 {
			close(d.drained)
		}
	}
	return d.drained
}
