package sched

import (
	"slices"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// share is a subscriber's own slots: a bulkhead. Others cannot take them, and
// what it does in them is charged to no budget that others use. What it has in
// flight beyond them competes like any other attempt. A share stands while its
// subscriber is active and reserves slots, with or without an actor. Attempts from
// before it began stay charged to what all share. It is guarded by the
// dispatcher's mutex.
//
// Invariant: own is the smaller of size and len(slots); tenant.sharesFree is the
// sum of size-own over the tenant's shares.
type share struct {
	tenant *tenant
	asked  int     // slots that the subscriber's record reserves
	size   int     // what it was allotted of them
	slots  []*slot // all that the subscriber has in flight; the first own of them are its own
	own    int
	queued *actor // its actor, while that competes for a slot
}

// shareLocked brings the dispatcher up to date with the record: what a paused,
// disabled or deleted subscriber reserves is free to all.
func (a *actor) shareLocked() {
	slots := 0
	if a.sub.Status == delivery.SubscriberActive && !a.forgotten {
		slots = min(a.sub.Reserved, max(1, a.sub.Concurrency))
		if a.strictLocked() {
			slots = min(slots, 1)
		}
	}
	if slots > 0 || a.s.dispatch.sharing.Load() > 0 {
		a.s.dispatch.setShare(a, slots)
	}
}

// setShare gives an actor's subscriber slots of its own, as many as it asks for.
func (d *dispatcher) setShare(a *actor, asked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sh := d.shares[a.num]
	switch {
	case sh == nil && asked == 0, sh != nil && sh.asked == asked:
		return
	case asked == 0:
		d.endShareLocked(a.num, sh)
		return
	case sh == nil:
		sh = &share{tenant: a.tenant}
		if a.node.line != nil {
			sh.queued = a
		}
		d.shares[a.num] = sh
		d.sharing.Add(1)
	}
	d.promised -= sh.tenant.promised()
	sh.tenant.sharesAsked += asked - sh.asked
	sh.asked = asked
	d.promised += sh.tenant.promised()
	d.allotLocked(sh, nil)
}

// dropShare ends a subscriber's share, if it has one.
func (d *dispatcher) dropShare(num delivery.SubscriberNum) {
	if d.sharing.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if sh := d.shares[num]; sh != nil {
		d.endShareLocked(num, sh)
	}
}

// endShareLocked charges what is in flight to the budgets that all use.
func (d *dispatcher) endShareLocked(num delivery.SubscriberNum, sh *share) {
	t := sh.tenant
	d.promised -= t.promised()
	t.sharesAsked -= sh.asked
	sh.asked = 0
	d.promised += t.promised()
	d.resizeLocked(sh, 0)
	for _, s := range sh.slots {
		s.share = nil
	}
	delete(d.shares, num)
	d.sharing.Add(-1)
	d.allotLocked(nil, nil)
	d.dropTenantLocked(t)
}

// allotLocked gives a reservation that changed its size: a share's, a tenant's.
// It looks at the others only when all of them were promised more than there is.
func (d *dispatcher) allotLocked(sh *share, t *tenant) {
	reservable := Reservable(d.most)
	scaled := d.promised > reservable
	if scaled || d.scaled {
		for _, each := range d.shares {
			d.resizeLocked(each, allotted(each.asked, d.promised, reservable))
		}
		for _, each := range d.reserving {
			d.keepLocked(each, allotted(each.record.Load().Reserved, d.promised, reservable))
		}
	}
	d.scaled = scaled
	if sh != nil {
		d.resizeLocked(sh, allotted(sh.asked, d.promised, reservable))
	}
	if t != nil {
		d.keepLocked(t, allotted(t.record.Load().Reserved, d.promised, reservable))
	}
	d.bound[classSlow] = ownBudget(d.budget[classSlow], d.most, d.bound[classOwn])
	d.bound[classNew] = ownBudget(d.budget[classNew], d.most, d.bound[classOwn])
	d.vacancyLocked()
}

// keepLocked changes what is reserved for a tenant.
func (d *dispatcher) keepLocked(t *tenant, slots int) {
	d.unused -= t.unused()
	t.kept = slots
	d.unused += t.unused()
}

// resizeLocked changes a share's size. Slots that it gains or loses are charged
// anew at once; no attempt in flight is called back.
func (d *dispatcher) resizeLocked(sh *share, size int) {
	if size == sh.size {
		return
	}
	t := sh.tenant
	d.unused -= t.unused()
	t.sharesFree += size - sh.size
	d.bound[classOwn] += size - sh.size
	sh.size = size
	d.fitLocked(sh)
	d.unused += t.unused()
	t.weigh()
	if t.limitedUntil == 0 {
		d.attachLocked(t)
	}
}

// fitLocked makes as many slots of a share its own as it has room for, and has
// its actor compete where it now belongs. The caller keeps dispatcher.unused.
func (d *dispatcher) fitLocked(sh *share) {
	for want := min(sh.size, len(sh.slots)); sh.own < want; sh.own++ {
		d.inFlight[sh.slots[sh.own].class]--
		d.inFlight[classOwn]++
		sh.tenant.sharesFree--
	}
	for want := min(sh.size, len(sh.slots)); sh.own > want; {
		sh.own--
		d.inFlight[classOwn]--
		d.inFlight[sh.slots[sh.own].class]++
		sh.tenant.sharesFree++
	}
	if a := sh.queued; a != nil && a.node.class != d.classOfLocked(a) {
		d.removeLocked(a)
		d.insertLocked(a)
	}
}

// enterLocked charges a slot that was just given.
func (d *dispatcher) enterLocked(s *slot, sh *share) {
	d.inFlight[s.class]++
	if sh == nil {
		return
	}
	s.share, s.place = sh, len(sh.slots)
	sh.slots = append(sh.slots, s)
	d.fitLocked(sh)
}

// leaveLocked ends the charge of a slot that is given back.
func (d *dispatcher) leaveLocked(s *slot) {
	sh := s.share
	if sh == nil {
		d.inFlight[s.class]--
		return
	}
	if s.place < sh.own {
		sh.own--
		sh.tenant.sharesFree++
		d.inFlight[classOwn]--
		sh.swap(s.place, sh.own)
	} else {
		d.inFlight[s.class]--
	}
	last := len(sh.slots) - 1
	sh.swap(s.place, last)
	sh.slots[last] = nil
	sh.slots = sh.slots[:last]
	s.share = nil
	d.fitLocked(sh)
}

func (sh *share) swap(i, j int) {
	sh.slots[i], sh.slots[j] = sh.slots[j], sh.slots[i]
	sh.slots[i].place, sh.slots[j].place = i, j
}

// isOwn reports whether a slot is one of its subscriber's own.
func (s *slot) isOwn() bool { return s.share != nil && s.place < s.share.own }

// shareOfLocked returns a subscriber's share; nil = none.
func (d *dispatcher) shareOfLocked(num delivery.SubscriberNum) *share {
	if len(d.shares) == 0 {
		return nil
	}
	return d.shares[num]
}

// classOfLocked is where an actor competes: for a slot of its own while one is
// free, else in the budget of its standing.
func (d *dispatcher) classOfLocked(a *actor) class {
	if sh := d.shareOfLocked(a.num); sh != nil && sh.own < sh.size {
		return classOwn
	}
	return a.class()
}

// reservingLocked keeps the list of tenants that reserve.
func (d *dispatcher) reservingLocked(t *tenant) {
	i := slices.Index(d.reserving, t)
	switch reserves := t.record.Load().Reserved > 0; {
	case reserves && i < 0:
		d.reserving = append(d.reserving, t)
	case !reserves && i >= 0:
		d.reserving = slices.Delete(d.reserving, i, i+1)
	}
}
