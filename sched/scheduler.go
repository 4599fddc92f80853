package sched

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// errStopping is the cause with which Stop interrupts attempts in flight.
var errStopping = errors.New("scheduler is stopping")

// Scheduler decides which delivery is tried, and when. Its goroutines are the
// retry clock's, one for the search for backlogs at start, loaders while there
// is something to read, and one worker per attempt in flight; Stop ends all of
// them.
type Scheduler struct {
	cfg    Config
	queue  Queue
	dir    Directory
	sender Sender
	obs    *Observer
	log    *slog.Logger

	breaker atomic.Pointer[BreakerPolicy]

	time     *timepiece
	clock    *retryClock
	dispatch *dispatcher
	actors   *registry
	loader   *loader
	payloads budget
	// epoch is the first of this process: what was leased in an earlier one may
	// have been sent by a node that died. Later ones are the queue's, opened again
	// under the same scheduler, which knows what it sent.
	epoch     delivery.Epoch
	lineLimit int // blocked keys that one actor knows at a time

	rows        atomic.Int64 // rows in windows, over all actors
	inMemory    atomic.Int64 // actors in memory
	uncommitted atomic.Int64 // outcomes handed over and not durable
	commits     atomic.Int64 // commits that are not done
	stalled     atomic.Bool  // a commit failed: nothing is sent until Resume
	running     atomic.Bool  // between Start and Stop
	era         atomic.Int64 // calls of Resume
	stalling    sync.Mutex   // ties era and stalled together

	life       sync.Mutex // serializes Start, Stop and Resume
	started    bool
	stopped    chan struct{}      // closed when Stop is done; nil = not called
	background context.Context    // of the retry clock and the search for backlogs
	cancel     context.CancelFunc // ends background
	tasks      sync.WaitGroup
	sending    context.Context // of attempts
	interrupt  context.CancelCauseFunc
	settled    chan struct{} // poked when commits fell to zero after Stop began
}

// New returns a scheduler that has not been started.
func New(queue Queue, dir Directory, sender Sender, cfg Config) (*Scheduler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sched config: %w", err)
	}
	s := &Scheduler{
		cfg: cfg, queue: queue, dir: dir, sender: sender, log: cfg.Logger,
		actors: newRegistry(), payloads: budget{most: cfg.PayloadBytes}, epoch: queue.Lease().Epoch, lineLimit: lineLimit,
	}
	s.breaker.Store(&cfg.Breaker)
	s.settled = make(chan struct{}, 1)
	s.obs = &s.cfg.Observer
	s.time = newTimepiece(s.clockStepped)
	s.clock = newRetryClock(queue, s.time, cfg)
	s.clock.fire, s.clock.failed = s.fire, s.wakesFailed
	s.dispatch = newDispatcher(cfg)
	s.dispatch.gate = s.open
	s.dispatch.wakeSlow = func(at instant) { s.clock.set(wakeKey{kind: wakeSlow}, at) }
	s.dispatch.wakeTenant = func(num delivery.TenantNum, at instant) {
		s.clock.set(wakeKey{uint64(num), wakeTenant}, at)
	}
	s.loader = newLoader(cfg.Loaders, s.load)
	s.background, s.cancel = context.WithCancel(context.Background())
	s.sending, s.interrupt = context.WithCancelCause(context.Background())
	return s, nil
}

// Start begins to serve what is in the queue, and what comes. The hooks may be
// called before. Calling it again does nothing.
func (s *Scheduler) Start(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped != nil {
		return errStopping
	}
	if s.started {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.started = true
	s.running.Store(true)
	s.tasks.Go(func() { s.clock.run(s.background) })
	s.tasks.Go(func() { s.findBacklogs(s.background) })
	s.advanceAll()
	return nil
}

// halted reports whether nothing may be read for sending, claimed or sent.
func (s *Scheduler) halted() bool { return !s.running.Load() || s.stalled.Load() }

// open is the dispatcher's gate: it is shut while nothing may start. Each commit
// that is done looks at it again.
func (s *Scheduler) open() bool {
	if s.halted() {
		return false
	}
	return s.uncommitted.Load() < int64(s.cfg.MaxUncommitted)
}

// commitDone lets Stop look whether it was the last one.
func (s *Scheduler) commitDone() {
	if s.commits.Add(-1) == 0 && !s.running.Load() {
		select {
		case s.settled <- struct{}{}:
		default:
		}
	}
}

// wall returns the wall time.
func (s *Scheduler) wall() time.Time {
	wall, _ := s.time.read()
	return wall
}

// lock returns a subscriber's actor, locked; one is made if there is none.
func (s *Scheduler) lock(num delivery.SubscriberNum) *actor {
	for {
		a := s.actors.findOrMake(num, func(m memo, n note) *actor { return s.newActor(num, m, n) })
		a.mu.Lock()
		if !a.gone {
			return a
		}
		a.mu.Unlock()
	}
}

// lockExisting returns a subscriber's actor, locked, if it is in memory.
func (s *Scheduler) lockExisting(num delivery.SubscriberNum) *actor {
	for {
		a, _ := s.actors.find(num)
		if a == nil {
			return nil
		}
		a.mu.Lock()
		if !a.gone {
			return a
		}
		a.mu.Unlock()
	}
}

// wake makes an actor look for work.
func (s *Scheduler) wake(num delivery.SubscriberNum, why func(*actor)) {
	a := s.lock(num)
	a.wanted, a.asleep = true, false
	if why != nil {
		why(a)
	}
	a.advanceLocked()
	a.unlock()
	s.pump()
}

// Kick tells that a subscriber's record changed, that it was resumed, or that
// rows came into its queue other than by a publish. At start it is called for
// subscribers that reserve slots, which are theirs from then on.
func (s *Scheduler) Kick(sub delivery.SubscriberNum) {
	s.wake(sub, func(a *actor) {
		a.reread, a.forgotten = true, false
		a.kicks++
	})
}

// EventDeleted tells that an event was deleted. Payloads in memory are not used
// any more from then on; the queue says which of them still are to be sent.
func (s *Scheduler) EventDeleted() { s.payloads.era.Add(1) }

// KickTenant tells that a tenant's record changed, or that it was deleted. At
// start it is called for tenants with a reservation, which counts from then on.
func (s *Scheduler) KickTenant(num delivery.TenantNum) error {
	record, err := s.dir.Tenant(num)
	if errors.Is(err, delivery.ErrNoTenant) {
		s.dispatch.dropTenant(num)
		s.pump()
		return nil
	}
	if err != nil {
		return fmt.Errorf("tenant %d: %w", num, err)
	}
	s.dispatch.addTenant(record, 0)
	s.pump()
	return nil
}

// Forget tells that a subscriber was deleted. When it returns, no more facts
// about it will come from here: what is pending for it is the caller's to
// cancel, attempts in flight included.
func (s *Scheduler) Forget(sub delivery.SubscriberNum) {
	a := s.lockExisting(sub)
	if a == nil {
		// Not before: an actor that was just leaving would remember it again.
		s.actors.forget(sub)
		s.dispatch.dropShare(sub)
		s.pump()
		return
	}
	a.forgetLocked()
	a.advanceLocked()
	a.unlock()
	s.pump()
}

func (a *actor) forgetLocked() {
	a.forgotten = true
	a.s.dispatch.dropShare(a.num)
	a.unloadLocked()
	a.retreating, a.reset, a.lost = false, false, nil
}

// fire is called by the retry clock.
func (s *Scheduler) fire(w wake) {
	switch w.kind {
	case wakeRetry:
		switch a, m := s.actors.find(delivery.SubscriberNum(w.num)); {
		case a == nil && m&memoDeaf != 0:
			return // whatever it waits for lets it read all its rows again
		case a == nil && s.inMemory.Load() >= int64(s.cfg.MaxActors):
			s.clock.again(w, crowdedWait)
			return
		}
		s.wake(delivery.SubscriberNum(w.num), func(a *actor) { a.retry.wakeLocked(w.due) })
	case wakeActor:
		s.wake(delivery.SubscriberNum(w.num), func(a *actor) { a.armedAt = 0 })
	case wakeTenant:
		s.dispatch.unlimitTenant(delivery.TenantNum(w.num), s.time.mono()) //nolint:gosec // was a TenantNum
		s.pump()
	case wakeSlow:
		s.dispatch.findSlow(s.time.mono())
		s.pump()
	}
}

// crowdedWait is how long a due retry waits when there are as many actors in
// memory as there may be.
const crowdedWait = time.Second

func (s *Scheduler) wakesFailed(err error) {
	s.log.Error("wake index cannot be read", "error", err)
	s.obs.readFailed(0, err)
}

func (s *Scheduler) clockStepped(by time.Duration) {
	s.log.Warn("wall clock was set", "by", by)
	s.obs.clockStepped(by)
}

// advanceAll lets every actor in memory look for work.
func (s *Scheduler) advanceAll() {
	for _, a := range s.actors.all() {
		a.mu.Lock()
		a.advanceLocked()
		a.unlock()
	}
	s.pump()
}

// findBacklogs wakes the subscribers that have rows on disk, while new traffic
// flows. It is slower than the loaders, so that the actors it makes do not pile
// up.
func (s *Scheduler) findBacklogs(ctx context.Context) {
	backoff := s.cfg.RereadAfter
	for ctx.Err() == nil {
		err := s.scanBacklogs(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("backlogs cannot be read", "error", err)
		s.obs.readFailed(0, err)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, rereadMax)
	}
}

func (s *Scheduler) scanBacklogs(ctx context.Context) error {
	for sub, err := range s.queue.Backlogs(ctx) {
		if err != nil {
			return err
		}
		s.wake(sub, nil)
		if !s.loader.waitRoom(ctx, func() bool { return s.inMemory.Load() < int64(s.cfg.MaxActors) }) {
			return ctx.Err()
		}
	}
	return nil
}
