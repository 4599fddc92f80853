package sched

// Slots of the other classes are watched: one that holds its attempt for longer
// than slowAfter is moved to the slow budget, and so is its actor. The list is
// in the order of the next look, which a worker that goes on with another
// attempt does not have to touch: a look at a slot whose attempt is younger
// only moves it to the end.

func (d *dispatcher) watchLocked(s *slot, checkAt instant) {
	s.checkAt, s.listed = checkAt, true
	s.prev, s.next = d.watched.tail, nil
	if d.watched.tail != nil {
		d.watched.tail.next = s
	} else {
		d.watched.head = s
		d.wakeSlow(checkAt)
	}
	d.watched.tail = s
}

func (d *dispatcher) unwatchLocked(s *slot) {
	if !s.listed {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		d.watched.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		d.watched.tail = s.prev
	}
	s.listed, s.next, s.prev = false, nil, nil
}

// findSlow looks at the slots whose time has come.
func (d *dispatcher) findSlow(now instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := d.watched.head; s != nil && !now.before(s.checkAt); s = d.watched.head {
		d.unwatchLocked(s)
		started := instant(s.started.Load())
		if due := started.add(d.slowAfter); now.before(due) {
			d.watchLocked(s, due)
			continue
		}
		s.actor.standing.Store(int32(classSlow))
		if !s.isOwn() {
			d.inFlight[s.class]--
			d.inFlight[classSlow]++
		}
		s.class = classSlow
		s.moved.Store(true)
	}
	d.vacancyLocked()
	if s := d.watched.head; s != nil {
		d.wakeSlow(s.checkAt)
	}
}
