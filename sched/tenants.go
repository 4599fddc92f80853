package sched

import (
	"github.com/dispatcher-engine/dispatcher/delivery"
)

// joinTenant returns a tenant for one more actor; nil when it is not known yet.
func (d *dispatcher) joinTenant(num delivery.TenantNum) *tenant {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tenants[num]
	if t != nil {
		t.actors++
	}
	return t
}

// addTenant makes a tenant known, for actors more actors. A record that is
// newer than the known one replaces it.
func (d *dispatcher) addTenant(record *delivery.Tenant, actors int) *tenant {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tenants[record.Num]
	if t == nil {
		t = newTenant(record)
		d.tenants[record.Num] = t
	} else {
		d.promised -= t.promised()
		if record.Version >= t.record.Load().Version {
			t.record.Store(record)
		}
	}
	d.promised += t.promised()
	t.actors += actors
	if t.kept > 0 || t.record.Load().Reserved > 0 {
		d.reservingLocked(t)
		d.allotLocked(nil, t)
	}
	// Its bounds may have changed: let them be judged again.
	t.weigh()
	t.limitedUntil = 0
	d.attachLocked(t)
	d.dropTenantLocked(t)
	return t
}

// leaveTenant is the end of an actor.
func (d *dispatcher) leaveTenant(t *tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.actors--
	d.dropTenantLocked(t)
}

// dropTenantLocked forgets a tenant that nobody points to. One with a
// reservation stays, since its reservation counts while it is idle; one that is
// out of tokens has actors.
func (d *dispatcher) dropTenantLocked(t *tenant) {
	if t.actors > 0 || t.inFlight > 0 || t.promised() > 0 {
		return
	}
	delete(d.tenants, t.num)
}

// dropTenant ends what is reserved for a tenant that was deleted and for its
// subscribers. What is in flight for it ends by itself.
func (d *dispatcher) dropTenant(num delivery.TenantNum) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tenants[num]
	if t == nil {
		return
	}
	for sub, sh := range d.shares {
		if sh.tenant == t {
			d.endShareLocked(sub, sh)
		}
	}
	record := *t.record.Load()
	d.promised -= t.promised()
	record.Reserved = 0
	t.record.Store(&record)
	d.promised += t.promised()
	d.reservingLocked(t)
	d.allotLocked(nil, t)
	d.dropTenantLocked(t)
}

// plentyAfter is how many tokens in a row end a tenant's scarcity.
const plentyAfter = 64

// answered is told what a slot's question for a token of its tenant's bucket was
// answered: 0 = granted, otherwise when it is worth asking again. Where tokens
// are scarce one attempt asks at a time, in turn; were all to ask at once,
// chance would decide who gets the next token.
func (d *dispatcher) answered(s *slot, limitedUntil instant) {
	d.mu.Lock()
	t := s.tenant
	d.askedLocked(s)
	if limitedUntil == 0 {
		t.granted++
		if t.granted >= plentyAfter {
			t.scarce.Store(false)
		}
		if t.limitedUntil == 0 {
			d.attachLocked(t)
		}
		d.mu.Unlock()
		return
	}
	t.granted = 0
	t.scarce.Store(true)
	t.limitedUntil = max(t.limitedUntil, limitedUntil)
	d.detachLocked(t, true)
	d.detachLocked(t, false)
	d.mu.Unlock()
	d.wakeTenant(t.num, limitedUntil)
}

// askedLocked ends a slot's question, whatever the answer.
func (d *dispatcher) askedLocked(s *slot) {
	if s.asking {
		s.asking = false
		s.tenant.asking--
	}
}

// unlimitTenant lets a tenant compete again when its wait is over.
func (d *dispatcher) unlimitTenant(num delivery.TenantNum, now instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tenants[num]
	if t == nil || now.before(t.limitedUntil) {
		return
	}
	t.limitedUntil = 0
	d.attachLocked(t)
}

// bounded says what keeps a queued actor from running, for the API.
func (d *dispatcher) bounded(a *actor, now instant) delivery.Reason {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.node.line == nil {
		return delivery.ReasonNone
	}
	return d.roomOfLocked(a.tenant, a.node.class, now).reason()
}
