package transport

import "time"

// idleList holds the idle connections of one class, the one idle for longest
// first. All of them have the same timeout, so the first is the next to expire,
// and one timer is enough; it is not armed while the list is empty. Everything
// is guarded by the pool's lock.
type idleList struct {
	pool        *pool
	timeout     time.Duration
	limit       int
	first, last *link
	n           int
	timer       *time.Timer
	armed       bool
}

// pushLocked adds a link that has just become idle.
func (q *idleList) pushLocked(l *link) {
	if l.idle {
		return
	}
	l.idle, l.idleSince = true, time.Now()
	l.prev, l.next = q.last, nil
	if q.last == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
	q.n++
	q.pool.gauge(l.proto).Idle++
	if q.n > q.limit {
		oldest := q.first
		q.pool.evictLocked(oldest, EvictCapacity)
		q.pool.forgetLocked(oldest.bucket)
	}
	q.armLocked()
}

// removeLocked takes a link out; one that is not in it is none of its business.
func (q *idleList) removeLocked(l *link) {
	if !l.idle {
		return
	}
	if l.prev == nil {
		q.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		q.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.prev, l.next, l.idle = nil, nil, false
	q.n--
	q.pool.gauge(l.proto).Idle--
}

// armLocked starts the timer for the first link. While it runs it is left
// alone: a link that was used meanwhile moves the expiry back only, and reap
// finds that out.
func (q *idleList) armLocked() {
	if q.armed || q.first == nil || q.pool.closed {
		return
	}
	q.armed = true
	wait := max(0, q.timeout-time.Since(q.first.idleSince))
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.reap)
		return
	}
	q.timer.Reset(wait)
}

// reap closes what has been idle for too long.
func (q *idleList) reap() {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.armed = false
	for q.first != nil && time.Since(q.first.idleSince) >= q.timeout {
		l := q.first
		q.pool.evictLocked(l, EvictIdle)
		q.pool.forgetLocked(l.bucket)
	}
	q.armLocked()
}

func (q *idleList) stopLocked() {
	if q.timer != nil {
		q.timer.Stop()
	}
}
