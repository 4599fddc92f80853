package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// building is the batch under construction, or the one being synced.
type building struct {
	c       *committer
	b       *pebble.Batch
	jobs    []job // answered when the batch is durable
	info    BatchInfo
	urgent  bool // somebody waits for it
	closed  bool // nothing more may be added
	applied time.Time
	touched map[DeliveryRef]struct{} // by steps of this batch
}

// fill adds what is queued to the batch under construction.
func (c *committer) fill() {
	for {
		c.pull()
		if c.next == len(c.taken) {
			return
		}
		for c.next < len(c.taken) {
			j := c.taken[c.next]
			if f := c.kv.failure.Load(); f != nil {
				c.next++
				c.refuse(j, f.err)
				continue
			}
			if !c.room(&j) {
				return
			}
			c.next++
			c.add(j)
		}
	}
}

// room makes sure that there is a batch that takes the job. If there is one that
// does not, it goes first.
func (c *committer) room(j *job) bool {
	alone := j.step != nil && j.step.alone
	if b := c.batch; b != nil {
		full := b.info.Publishes+b.info.Facts >= c.cfg.CommitFacts || b.b.Len() >= c.cfg.CommitBytes
		if b.closed || full || alone {
			b.closed, b.urgent = true, true
			return false
		}
		return true
	}
	c.open()
	c.batch.closed = alone
	return true
}

// open starts a batch.
func (c *committer) open() {
	var b *building
	if last := len(c.spare) - 1; last >= 0 {
		b, c.spare = c.spare[last], c.spare[:last]
	} else {
		b = &building{c: c, touched: map[DeliveryRef]struct{}{}}
	}
	if b.b == nil {
		// Full batches keep their memory, too: it grows in powers of two.
		b.b = c.db.NewBatch(pebble.WithMaxRetainedSizeBytes(2 * c.cfg.CommitBytes))
	}
	c.batch, c.elapsed = b, false
	if err := c.sweeps.run(c.db, b.b, c.meta.next); err != nil {
		c.kv.fail(fmt.Errorf("sweep consumed rows: %w", err))
	}
}

func (c *committer) add(j job) {
	b := c.batch
	switch {
	case j.publish != nil:
		if !j.publish.take() {
			c.drop(b)
			return
		}
		b.urgent = true
		c.addPublish(b, j.publish)
	case j.step != nil:
		if err := j.step.run(c.db, b); err != nil {
			j.done(err)
			c.drop(b)
			return
		}
		b.urgent = true
	default:
		if err := c.addFacts(b, j.facts); err != nil {
			j.done(err)
			c.drop(b)
			return
		}
	}
	b.jobs = append(b.jobs, j)
	if !b.urgent && len(b.jobs) == 1 {
		c.timer.Reset(c.cfg.CommitDelay)
	}
}

// drop gives up a batch that nothing was added to.
func (c *committer) drop(b *building) {
	if len(b.jobs) == 0 && b.b.Empty() {
		c.recycle(b)
		c.batch = nil
	}
}

// addFacts adds the facts of one Commit, all or none.
func (c *committer) addFacts(b *building, facts []delivery.Fact) error {
	for _, fact := range facts {
		if err := c.check(fact); err != nil {
			return err
		}
	}
	for _, fact := range facts {
		if m, ok := fact.(*delivery.Moved); ok && m.Next == delivery.NextDead && m.Copy == nil {
			if err := c.copyForDead(m); err != nil {
				return err
			}
		}
	}
	for _, fact := range facts {
		b.apply(fact)
		switch f := fact.(type) {
		case *delivery.Leased: // its rows wait to be sent
			b.urgent = true
		case *delivery.Moved:
			b.urgent = b.urgent || f.Awaited
		}
	}
	return nil
}

// apply gives a checked fact its position and folds it into the batch.
func (b *building) apply(fact delivery.Fact) delivery.Position {
	c := b.c
	pos, err := c.meta.take(b.b)
	if err == nil {
		err = c.fold.add(b.b, pos, fact)
	}
	if err != nil {
		// What was checked before cannot fail; half a fact must not be written.
		c.kv.fail(fmt.Errorf("apply %T at %d: %w", fact, pos, err))
		return pos
	}
	if c.record != nil {
		c.record(pos, fact)
	}
	c.sweeps.applied(pos, fact)
	if _, ok := fact.(*delivery.Published); ok {
		b.info.Publishes++
	} else {
		b.info.Facts++
	}
	return pos
}

// refuse answers a job that no batch will hold.
func (c *committer) refuse(j job, err error) {
	if j.publish == nil {
		j.done(err)
		return
	}
	if j.publish.take() {
		for i := range j.publish.receipts {
			if j.publish.receipts[i].Err == nil {
				j.publish.receipts[i].Err = err
			}
		}
		j.publish.done <- struct{}{}
	}
}

// errBadFact is wrapped by the error for a fact that cannot be applied.
var errBadFact = errors.New("fact cannot be applied")

// check refuses facts that the fold could not apply in full, and those of
// somebody whose lease is over.
func (c *committer) check(fact delivery.Fact) error {
	var lease delivery.Lease
	ok := true
	switch f := fact.(type) {
	case *delivery.Leased:
		lease, ok = f.Lease, f.Place <= delivery.PlaceParked && f.Subscriber != 0
	case *delivery.Moved:
		lease = f.Lease
		ok = checkRow(&f.Row) && f.Next >= delivery.NextDelivered && f.Next <= delivery.NextParked &&
			(f.Next != delivery.NextParked && !f.Block && !f.Unblock || f.Row.Key != 0)
	case *delivery.Dropped:
		lease, ok = f.Lease, f.Subscriber != 0
		for i := range f.Rows {
			ok = ok && checkRow(&f.Rows[i])
		}
	case *delivery.Replayed:
		lease, ok = f.Lease, f.Subscriber != 0 && f.Lane < delivery.Lanes && !f.Event.IsZero()
	case *delivery.Purged:
		lease, ok = f.Lease, f.Subscriber != 0
	case *delivery.Expunged:
		lease = f.Lease
	case *delivery.HealthChanged:
		lease, ok = f.Lease, f.Subscriber != 0
	default:
		return fmt.Errorf("commit %T: %w", fact, errBadFact)
	}
	if lease.Epoch != c.lease.Epoch {
		return fmt.Errorf("commit %T of epoch %d in epoch %d: %w", fact, lease.Epoch, c.lease.Epoch, ErrFenced)
	}
	if !ok {
		return fmt.Errorf("commit %T: %w", fact, errBadFact)
	}
	return nil
}

func checkRow(r *delivery.Row) bool {
	return r.Subscriber != 0 && r.Seq != 0 && r.Place <= delivery.PlaceParked && r.Lane < delivery.Lanes
}
