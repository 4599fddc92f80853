package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ErrFenced: the fact carries the lease of an earlier opening of the store.
var ErrFenced = errors.New("lease is over")

// errBadEvent is wrapped by the error for an event that cannot be stored.
var errBadEvent = errors.New("event cannot be stored")

// publishing is one call of Publish on its way.
type publishing struct {
	events   []*delivery.Published // nil where the receipt has an error already
	receipts []delivery.Receipt
	done     chan struct{} // capacity 1
	state    atomic.Int32
}

// States of a publishing: whoever moves it on from waiting decides.
const (
	publishWaiting   = 0
	publishTaken     = 1 // it is in a batch, or being refused
	publishWithdrawn = 2 // its caller has left
)

func (p *publishing) take() bool { return p.state.CompareAndSwap(publishWaiting, publishTaken) }

// answer completes the receipts, wakes the caller, and tells of what is durable.
// In this order: the goroutine that was woken last is the one that runs next, and
// a delivery that is sent 0.1 ms earlier is worth more than an answer that is.
// Nobody writes to receipts once the caller has them.
func (p *publishing) answer(hooks *Hooks, err error) {
	if err != nil {
		p.abort(hooks, err)
		p.done <- struct{}{}
		return
	}
	p.done <- struct{}{}
	if hooks.Committed == nil {
		return
	}
	for i := range p.receipts {
		if r := &p.receipts[i]; r.Err == nil && !r.Deduplicated {
			hooks.Committed(p.events[i], r.Position)
		}
	}
}

// abort completes the receipts of a batch that is not durable.
func (p *publishing) abort(hooks *Hooks, err error) {
	for i := range p.receipts {
		r := &p.receipts[i]
		if r.Err != nil {
			continue
		}
		if !r.Deduplicated && hooks.Aborted != nil {
			hooks.Aborted(p.events[i])
		}
		*r = delivery.Receipt{Err: err}
	}
}

// Publish stores events with their deliveries and returns one receipt each. A
// receipt without an error means that the event is on disk: it was synced, or it
// repeats one that was. Calls side by side share an fsync, and so do the events
// of one call, which keep their order.
//
// If ctx ends before the events were put into a batch, they are withdrawn and
// not stored. If it ends later the receipts say [delivery.ErrUnknownCommit].
//
// Publish takes over the values it is given: Lease, Event.Size, Event.Spool and
// Target.Leased are filled in, and nothing may be changed afterwards. So it does
// with the files of [Store.SpoolPayload].
func (s *Store) Publish(ctx context.Context, events []*delivery.Published) []delivery.Receipt {
	p := &publishing{
		events: events, receipts: make([]delivery.Receipt, len(events)), done: make(chan struct{}, 1),
	}
	err := s.admissible(ctx, events)
	var c *committer
	if err == nil {
		c, err = s.committer()
	}
	if err != nil {
		s.discard(takenOver(nil, events))
		return p.all(err)
	}
	spooled := takenOver(s.prepare(p), events)
	if !c.push(job{publish: p}) {
		s.discard(spooled)
		return p.all(s.notTaken())
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.state.CompareAndSwap(publishWaiting, publishWithdrawn) {
			s.discard(spooled)
			return p.all(fmt.Errorf("publish: %w", context.Cause(ctx)))
		}
		select {
		case <-p.done: // it was over already
		default:
			// The receipts belong to the committer now.
			return (&publishing{receipts: make([]delivery.Receipt, len(events))}).all(
				fmt.Errorf("publish: %w: %w", delivery.ErrUnknownCommit, context.Cause(ctx)))
		}
	}
	s.discardUnused(p, spooled)
	return p.receipts
}

// all gives every receipt that has none the same error.
func (p *publishing) all(err error) []delivery.Receipt {
	for i := range p.receipts {
		if p.receipts[i].Err == nil {
			p.receipts[i] = delivery.Receipt{Err: err}
		}
	}
	return p.receipts
}

// admissible reports why these may not be published now.
func (s *Store) admissible(ctx context.Context, events []*delivery.Published) error {
	if ctx.Err() != nil {
		return fmt.Errorf("publish: %w", context.Cause(ctx))
	}
	if full := s.disk.full.Load(); full != nil && !urgent(events) {
		return full
	}
	return s.stalled()
}

// urgent reports whether all of them go below the watermark.
func urgent(events []*delivery.Published) bool {
	return len(events) > 0 && !slices.ContainsFunc(events, func(x *delivery.Published) bool { return x == nil || !x.Urgent })
}

// takenOver adds to names the files that events bring along.
func takenOver(names []string, events []*delivery.Published) []string {
	for _, x := range events {
		if x != nil && x.Event != nil && x.Event.Spool != "" && x.Event.Spool == spoolName(x.Event.Key, 0) && !slices.Contains(names, x.Event.Spool) {
			names = append(names, x.Event.Spool)
		}
	}
	return names
}

// prepare checks the events and moves large payloads into spool files.
func (s *Store) prepare(p *publishing) (spooled []string) {
	for i, x := range p.events {
		if err := checkPublished(x); err != nil {
			p.receipts[i].Err = err
			continue
		}
		if x.Event.Spool == "" {
			x.Event.Size = int64(len(x.Event.Payload))
		}
		if x.Event.Size <= s.cfg.SpoolOver || x.Event.Spool != "" {
			continue
		}
		name, _, err := s.spool.write(x.Event.Key, bytes.NewReader(x.Event.Payload))
		if err != nil {
			p.receipts[i].Err = fmt.Errorf("publish %s: %w", x.Event.Key, err)
			continue
		}
		e := *x.Event
		e.Spool, e.Payload = name, nil
		x.Event = &e
		spooled = append(spooled, name)
	}
	return spooled
}

func checkPublished(x *delivery.Published) error {
	switch {
	case x == nil || x.Event == nil:
		return fmt.Errorf("publish: no event: %w", errBadEvent)
	case x.Event.Key.IsZero() || x.Event.Tenant == 0 || x.Event.ID == "":
		return fmt.Errorf("publish %q: key, tenant and id are needed: %w", x.Event.ID, errBadEvent)
	case len(x.Event.Headers) > delivery.MaxEventHeaders:
		return fmt.Errorf("publish %q: more than %d headers: %w", x.Event.ID, delivery.MaxEventHeaders, errBadEvent)
	}
	for i := range x.Targets {
		if t := &x.Targets[i]; t.Subscriber == 0 || t.Lane >= delivery.Lanes {
			return fmt.Errorf("publish %q: target %d has no subscriber or an unknown lane: %w", x.Event.ID, i, errBadEvent)
		}
	}
	return nil
}

// addPublish puts the events of one call into the batch: duplicates are
// answered, new ones get their positions.
func (c *committer) addPublish(b *building, p *publishing) {
	hooks := c.hooks.Load()
	for i, x := range p.events {
		r := &p.receipts[i]
		if r.Err != nil {
			continue
		}
		x.Lease = c.lease
		first, err := c.dedupe.check(c.db, x)
		switch {
		case err != nil:
			r.Err = err
			continue
		case first != nil:
			*r = *first
			continue
		}
		if hooks.Admit != nil {
			hooks.Admit(x)
		}
		c.dedupe.add(x)
		pos := b.apply(x)
		*r = delivery.Receipt{
			Event: x.Event.Key, ID: x.Event.ID, Position: pos, Deliveries: len(x.Targets),
		}
	}
}

// Commit writes facts. It never blocks; the order of calls is the order of
// positions. done runs on the committer's goroutine, and must not block, once
// the facts are durable, or with the reason why none of them will be. Outcomes
// wait up to Config.CommitDelay for company, unless they are awaited; a Leased fact
// does not wait.
//
// The facts belong to the store until done is called; it fills Moved.Copy.
func (s *Store) Commit(facts []delivery.Fact, done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	c, err := s.committer()
	if err != nil {
		done(err)
		return
	}
	if !c.push(job{facts: facts, done: done}) {
		done(s.notTaken())
	}
}

// step runs a step on the committer's goroutine and waits until it is durable.
func (s *Store) step(ctx context.Context, st *step) error {
	c, err := s.committer()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	if !c.push(job{step: st, done: func(err error) { done <- err }}) {
		return s.notTaken()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", delivery.ErrUnknownCommit, context.Cause(ctx))
	}
}

// notTaken says why the committer took no job: the store is closed, or is being
// opened again.
func (s *Store) notTaken() error {
	if err := s.ready(); err != nil {
		return err
	}
	return fmt.Errorf("%w: being opened", delivery.ErrNotReady)
}
