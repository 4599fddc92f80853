package sched

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// actor is a subscriber that has work. It has no goroutine: whoever brings
// work locks it, changes it and calls advanceLocked, which asks for whatever is
// next: a read by a loader, a slot from the dispatcher, a wake from the retry
// clock, or its own end. Since every change ends in advanceLocked under the
// same lock, no wake-up can be lost.
//
// Invariant: a row of the subscriber that can be sent is in memory, or one of
// disk (its lane), retry.check, a line's parked, or a pending wake says that it
// is on disk.
//
// Invariant: of each ordering key at most one row, its line's owner, is ready
// or in flight.
type actor struct {
	s        *Scheduler
	num      delivery.SubscriberNum
	standing atomic.Int32 // the class that its attempts are charged to
	node     node         // guarded by the dispatcher's mutex

	mu     sync.Mutex
	gone   bool // dismissed: look it up again
	memo   memo // what was remembered when it was made
	wanted bool // there may be work: read the record
	asleep bool // there is none until it is woken

	// The record and how it stands with the queue.
	sub        *delivery.Subscriber
	tenant     *tenant // set once, when open
	open       bool    // record, health and keys were read
	unclean    bool    // heads of keys may stand elsewhere than in PlaceRetry
	reread     bool    // the record or the queue may have changed
	kicks      int     // calls of Kick
	forgotten  bool    // deleted
	disabling  bool    // the engine was asked to disable it
	reset      bool    // a commit failed: memory is to be thrown away
	urlChanged time.Time
	urlBefore  uint64 // hash of the URL that its health is about, from its note

	// The window.
	lanes     [delivery.Lanes]lane
	retry     retryWindow
	lines     map[delivery.KeyHash]*line
	held      holdUp             // strict: the last head that everything waited for
	moreLines bool               // more keys are blocked than lines knows
	wanting   []delivery.KeyHash // lines whose parked rows are to be read
	window    int                // rows per lane that are worth having
	ready     [delivery.Lanes]itemList
	streak    int // picks since an aged one
	leasing   itemList
	flight    itemList
	settling  itemList // outcomes that are not durable

	// What limits it.
	pulse
	disposed     int     // rows disposed of since the circuit half-opened
	openAt       instant // when an open circuit half-opens
	allowance    int     // attempts in flight that it has earned
	latency      time.Duration
	limitedUntil instant // its token bucket is empty until then
	sweepAt      instant // held: when the oldest row expires

	// Bookkeeping.
	news        []func() // for the observer, once the lock is released
	retreating  bool     // leases of pages are to be taken back
	generation  int      // raised when the window is thrown away
	promised    int      // rows of publishes between Admit and Committed
	outstanding int      // commits that are not done
	loading     bool
	queued      bool
	queuedLane  delivery.Priority
	queuedClass class // its standing then
	rereads     int   // failed reads in a row
	rereadAt    instant
	armedAt     instant
	lost        []lostFact // outcomes whose commit failed
	// disableAfterReset: a commit that was to disable the subscriber failed.
	disableAfterReset delivery.Reason
	nextLoad          *actor // in the loader's queue
}

// lane is the window over one lane of ready rows.
type lane struct {
	after    delivery.Seq // rows up to here are in memory, or done
	high     delivery.Seq // the highest after so far: up to here rows may be known
	disk     bool         // rows beyond after may be on disk
	dirty    bool         // set while a page is read: there may be more than it saw
	again    bool         // set while a page is read: begin from the start after it
	busy     bool         // a page is read, or waits for its lease
	leased   bool         // a lease of a page stands
	reserved int          // rows promised to Admit
	coming   int          // rows on their way to disk
	rows     int          // rows in memory that are not in flight
	page     int          // rows when the last page had come
	pageAt   instant      // when that was
}

// rewind forgets how far the lane was read.
func (l *lane) rewind() { l.after, l.disk, l.dirty, l.again = 0, true, true, true }

func (s *Scheduler) newActor(num delivery.SubscriberNum, m memo, n note) *actor {
	s.inMemory.Add(1)
	a := &actor{
		s: s, num: num, memo: m, asleep: m&memoAsleep != 0, unclean: m&memoKnown == 0,
		window: firstWindow, allowance: s.cfg.StartAllowance, latency: n.latency, urlBefore: n.url,
	}
	a.recent, a.samples = n.recent, n.samples
	a.standing.Store(int32(classNew))
	if m&memoKnown != 0 {
		a.allowance = 1 << 30
		a.standing.Store(int32(classFast))
	}
	if n.latency > s.cfg.SlowAfter {
		a.standing.Store(int32(classSlow))
	}
	return a
}

// firstWindow is how many rows are read first; it doubles while they are used up,
// or quickly.
const firstWindow = 8

// unlock releases the lock, and tells the observer what happened under it.
func (a *actor) unlock() {
	news := a.news
	a.news = nil
	a.mu.Unlock()
	for _, tell := range news {
		tell()
	}
}

// servingLocked reports whether the subscriber takes deliveries.
func (a *actor) servingLocked() bool {
	return a.open && a.sub.Status == delivery.SubscriberActive && !a.forgotten && !a.disabling && !a.reset
}

// heldLocked reports whether its deliveries wait for a resume.
func (a *actor) heldLocked() bool {
	return a.open && !a.forgotten && !a.reset &&
		(a.sub.Status == delivery.SubscriberPaused || a.sub.Status == delivery.SubscriberDisabled)
}

func (a *actor) strictLocked() bool { return a.sub.Ordering == delivery.OrderingStrict }

// concurrencyLocked is the bound on attempts in flight right now.
func (a *actor) concurrencyLocked() int {
	most := max(1, a.sub.Concurrency)
	if a.strictLocked() {
		most = 1
	}
	switch a.Breaker {
	case delivery.BreakerOpen:
		return 0
	case delivery.BreakerHalfOpen:
		return 1
	default:
		return min(most, a.allowance)
	}
}

func (a *actor) readyRowsLocked() int { return a.ready[0].n + a.ready[1].n + a.ready[2].n }

// runnableLocked reports whether one more row may be claimed.
func (a *actor) runnableLocked(now instant) bool {
	return a.readyRowsLocked() > 0 && a.servingLocked() && a.flight.n < a.concurrencyLocked() &&
		!now.before(a.limitedUntil) && (!a.strictLocked() || a.settling.n == 0)
}

// advanceLocked asks for whatever comes next. Every change ends here.
func (a *actor) advanceLocked() {
	if a.gone || a.s.halted() {
		return
	}
	now := a.s.time.mono()
	a.halfOpenLocked(now)
	a.retreatLocked()
	a.competeLocked(now)
	if !a.loading && a.hasJobLocked(now) {
		a.loading = true
		a.s.loader.push(a)
		return
	}
	if a.idleLocked(now) {
		a.dismissLocked()
		return
	}
	a.armLocked(now)
}

// competeLocked enters the fair queue, or leaves it.
func (a *actor) competeLocked(now instant) {
	d := a.s.dispatch
	if !a.runnableLocked(now) {
		if a.queued && d.withdraw(a) {
			a.queued = false
		}
		return
	}
	lane := a.bestLaneLocked()
	if a.queued {
		if lane < a.queuedLane {
			a.queuedLane = lane
			d.promote(a, lane)
		}
		if a.class() != a.queuedClass {
			a.queuedClass = a.class()
			d.reclass(a)
		}
		return
	}
	a.queued, a.queuedLane, a.queuedClass = true, lane, a.class()
	d.enqueue(a, lane, now)
}

// keepPlaceLocked queues the actor where its ticket belongs.
func (a *actor) keepPlaceLocked(ticket instant) {
	if !a.runnableLocked(ticket) || a.queued && !a.s.dispatch.withdraw(a) {
		return
	}
	a.queued, a.queuedLane, a.queuedClass = true, a.bestLaneLocked(), a.class()
	a.s.dispatch.enqueue(a, a.queuedLane, ticket)
}

func (a *actor) class() class { return class(a.standing.Load()) }

func (a *actor) bestLaneLocked() delivery.Priority {
	best := delivery.Priority(delivery.Lanes - 1)
	for i := range a.ready {
		if a.ready[i].n > 0 {
			best = min(best, a.sub.Effective(delivery.Priority(i))) //nolint:gosec // three lanes
		}
	}
	return best
}

// halfOpenLocked ends an open circuit's wait.
func (a *actor) halfOpenLocked(now instant) {
	if !a.open || a.Breaker != delivery.BreakerOpen || now.before(a.openAt) {
		return
	}
	a.pulse = a.halfOpen()
	a.disposed = 0
	a.reportBreakerLocked(delivery.BreakerOpen, WhyWaited, "")
}

// idleLocked reports whether there is nothing to do, and nothing to wait for
// that needs the actor in memory.
func (a *actor) idleLocked(now instant) bool {
	return !a.loading && !a.queued && a.flight.n == 0 && a.outstanding == 0 && a.promised == 0 &&
		a.leasing.n == 0 && a.readyRowsLocked() == 0 && !a.reset && len(a.lost) == 0 && !now.before(a.rereadAt)
}

// dismissLocked ends the actor.
func (a *actor) dismissLocked() {
	m, n := a.memo, note{recent: a.recent, samples: a.samples, latency: a.latency}
	if a.open {
		m = a.memoLocked()
		if m&memoSick != 0 {
			n.url = hashURL(a.sub.URL)
		}
	}
	if n.latency <= a.s.cfg.SlowAfter {
		n.latency = 0
	}
	if a.forgotten {
		m, n = 0, note{}
	}
	if a.open && m&memoAsleep != 0 {
		a.armLocked(0)
	}
	a.gone = true
	a.s.actors.dismiss(a, m, n)
	if a.tenant != nil {
		a.s.dispatch.leaveTenant(a.tenant)
	}
	a.s.inMemory.Add(-1)
	a.s.loader.signal()
}

// memoLocked is what is worth remembering about an actor that has been open.
func (a *actor) memoLocked() memo {
	var m memo
	if a.servingLocked() {
		m = memoKnown
	}
	for _, l := range a.lines {
		if l.stale || l.blocked && l.where == headGone {
			m &^= memoKnown
		}
	}
	if len(a.lines) > 0 || a.moreLines {
		m |= memoKeys
	}
	if a.Breaker != delivery.BreakerClosed || a.Consecutive > 0 || a.Opens > 0 || !a.FailingSince.IsZero() {
		m |= memoSick
	}
	switch {
	case a.sweepAt > 0, a.servingLocked() && a.Breaker == delivery.BreakerOpen:
		m |= memoAsleep | memoDeaf
	case a.strictBlockedLocked() && a.servingLocked():
		m |= memoAsleep
	}
	return m
}

// armLocked asks the retry clock for the actor's next own deadline.
func (a *actor) armLocked(now instant) {
	at := forever
	if a.open && a.Breaker == delivery.BreakerOpen && a.servingLocked() {
		at = min(at, a.openAt)
	}
	if a.readyRowsLocked() > 0 && now.before(a.limitedUntil) {
		at = min(at, a.limitedUntil)
	}
	if now.before(a.rereadAt) {
		at = min(at, a.rereadAt)
	}
	if a.sweepAt > 0 {
		at = min(at, a.sweepAt)
	}
	if at == forever || a.armedAt > 0 && a.armedAt <= at {
		return
	}
	a.armedAt = at
	a.s.clock.set(wakeKey{uint64(a.num), wakeActor}, at)
}
