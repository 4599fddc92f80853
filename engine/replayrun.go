package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// Why a job ends before its end. The texts are shown.
var (
	errReplayCanceled       = errors.New("canceled")
	errReplayTenantGone     = errors.New("the tenant was deleted")
	errReplaySubscriberGone = errors.New("the subscriber was deleted")
	// errReplayStopped: the node stops; the job goes on after the next start.
	errReplayStopped = errors.New("the node stops")
)

const (
	replayAgainFirst = 250 * time.Millisecond
	replayAgainMost  = 10 * time.Second
	// replayTries is how often in a row a page may fail of something else than a
	// store that is not ready, before the job does.
	replayTries = 5
)

// start lets the jobs run, those first that a restart interrupted.
func (r *replays) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	r.fillLocked()
}

// stop interrupts the jobs: they go on after the next start. A page that is being
// written is waited for as long as ctx.
func (r *replays) stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.end(errReplayStopped)
	done := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("replay jobs: %w", context.Cause(ctx))
	}
}

// fillLocked gives free places to the jobs that wait.
func (r *replays) fillLocked() {
	for r.started && !r.stopped && r.running < maxReplaysRunning && len(r.waiting) > 0 {
		j := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.running++
		j.active = true
		r.wg.Go(func() { r.run(j) })
	}
}

func (r *replays) run(j *replayJob) {
	if err := r.work(j); err != nil {
		r.finish(j, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.active = false
	r.running--
	r.fillLocked()
}

// work replays until the job is done. An error is why it ends otherwise.
func (r *replays) work(j *replayJob) error {
	record := replayRecord{}
	err := r.reload(j, &record)
	var pace *rate.Limiter
	if per := j.record.PerSecond; per > 0 { // it never changes
		pace = rate.NewLimiter(rate.Limit(per), replayStep(per))
	}
	tries, again := 0, replayAgainFirst
	for {
		before := record.Cursor
		if err == nil {
			err = r.pages(j, &record, pace)
		}
		switch {
		case err == nil:
			return nil
		case j.ctx.Err() != nil:
			return context.Cause(j.ctx)
		case errors.Is(err, errReplayTenantGone), errors.Is(err, errReplaySubscriberGone):
			return err
		}
		if record.Cursor != before {
			tries, again = 0, replayAgainFirst
		}
		if !notReady(err) {
			r.engine.logger.Warn("replay_page_failed", "replay", j.id, "error", err.Error())
			if tries++; tries == replayTries {
				return err
			}
		}
		if !pause(j.ctx, again) {
			return context.Cause(j.ctx)
		}
		again = min(2*again, replayAgainMost)
		// Whether the last page was written is what the store says.
		err = r.reload(j, &record)
	}
}

// notReady reports whether the store has to be opened again first, which is not
// the job's fault, however long it takes.
func notReady(err error) bool {
	return errors.Is(err, delivery.ErrNotReady) || errors.Is(err, delivery.ErrUnknownCommit)
}

// pause waits; false = ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// reload reads what is stored of a job.
func (r *replays) reload(j *replayJob, into *replayRecord) error {
	body, ok, err := r.engine.store.ReplayJob(j.id)
	if err != nil {
		return err
	}
	record := replayRecord{}
	if !ok {
		return fmt.Errorf("replay job %q: its record is gone", j.id)
	}
	if err := json.Unmarshal(body, &record); err != nil {
		return fmt.Errorf("replay job %q: %w", j.id, err)
	}
	*into = record
	r.show(j, record)
	return nil
}

// show lets others see how far a job has come.
func (r *replays) show(j *replayJob, record replayRecord) {
	var outdated []string
	r.mu.Lock()
	ends := record.State.Ended() && !j.record.State.Ended()
	j.record = record
	if ends {
		j.cancel(nil)
		close(j.ended)
		outdated = r.outdatedLocked()
	}
	r.mu.Unlock()
	if !ends {
		return
	}
	r.engine.logger.Info("replay_job_ended", "replay", j.id, "tenant", record.Filter.Tenant, "state", string(record.State), "why", record.Why,
		"replayed", record.Replayed, "passed_over", record.PassedOver, "took", record.Ended.Sub(record.Created).String())
	if len(outdated) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), replayFinish)
		defer cancel()
		r.forget(ctx, outdated...)
	}
}

// pages replays page after page. Nil: the job has ended.
func (r *replays) pages(j *replayJob, record *replayRecord, pace *rate.Limiter) error {
	e := r.engine
	for !record.State.Ended() {
		if err := r.there(record); err != nil {
			return err
		}
		if err := r.count(j, record); err != nil {
			return err
		}
		page, err := e.store.DeadLetters(j.ctx, record.filter(), record.Cursor, replayStep(record.PerSecond))
		if err != nil {
			return err
		}
		if err := r.page(j, record, page, pace); err != nil {
			return err
		}
	}
	return nil
}

// there says whether what a job is about still exists.
func (r *replays) there(record *replayRecord) error {
	_, err := r.engine.directory.Tenant(record.Tenant)
	if errors.Is(err, delivery.ErrNoTenant) {
		return errReplayTenantGone
	}
	if err != nil || record.Subscriber == 0 {
		return err
	}
	_, err = r.engine.directory.Subscriber(record.Subscriber)
	if errors.Is(err, delivery.ErrNoSubscriber) {
		return errReplaySubscriberGone
	}
	return err
}

// count finds out, once, how many dead letters there are to replay.
func (r *replays) count(j *replayJob, record *replayRecord) error {
	if record.Counted {
		return nil
	}
	n := 0
	for cursor := ""; ; {
		page, err := r.engine.store.DeadLetters(j.ctx, record.filter(), cursor, listPage)
		if err != nil {
			return err
		}
		n += len(page.Items)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	record.Total, record.Counted, record.State, record.Started = n, true, ReplayRunning, time.Now().UTC()
	r.show(j, *record)
	return nil
}

// page replays what was listed, once its rate allows it, and notes that in the
// same write. Between the two nothing is cut off: a page is replayed and noted, or
// neither.
func (r *replays) page(j *replayJob, record *replayRecord, page storage.Page, pace *rate.Limiter) error {
	e := r.engine
	list := make([]storage.Replay, 0, len(page.Items))
	for _, item := range page.Items {
		sub, err := e.directory.Subscriber(item.Subscriber)
		switch {
		case err == nil:
			list = append(list, storage.Replay{Event: item.Event, Subscriber: sub, DiedBefore: record.Created})
		case notReady(err):
			return err
		case errors.Is(err, delivery.ErrNoSubscriber): // deleted meanwhile
		default:
			e.logger.Error("dead_letter_passed_over", "replay", j.id, "error", err.Error())
		}
	}
	if pace != nil && len(list) > 0 {
		if err := pace.WaitN(j.ctx, len(list)); err != nil {
			return err
		}
	}
	if err := j.ctx.Err(); err != nil {
		return err
	}
	now := time.Now().UTC()
	next := *record
	next.Cursor = page.Next
	if page.Next == "" {
		next.State, next.Ended = ReplayDone, now
	}
	errs, err := e.store.ReplayPage(context.WithoutCancel(j.ctx), now, j.id, list, func(errs []error) []byte {
		next.Replayed, next.PassedOver = record.Replayed, record.PassedOver+len(page.Items)-len(list)
		for _, err := range errs {
			if err == nil {
				next.Replayed++
			} else {
				next.PassedOver++
			}
		}
		return next.encode()
	})
	if err != nil {
		return err
	}
	*record = next
	r.replayed(j, list, errs)
	r.show(j, next)
	return nil
}

// replayed wakes the subscribers that have something to send again.
func (r *replays) replayed(j *replayJob, list []storage.Replay, errs []error) {
	last := delivery.SubscriberNum(0)
	for i, err := range errs {
		switch sub := list[i].Subscriber.Num; {
		case err == nil && sub != last: // they come subscriber by subscriber
			r.engine.sched.Kick(sub)
			last = sub
		case err == nil, errors.Is(err, delivery.ErrState), errors.Is(err, delivery.ErrNoDelivery), errors.Is(err, delivery.ErrEventGone):
		default:
			r.engine.logger.Error("dead_letter_passed_over", "replay", j.id, "error", err.Error())
		}
	}
}

// finish notes why a job ends before its end, as soon as the store takes it; or
// leaves that to the next start, which finds the same cause or goes on.
func (r *replays) finish(j *replayJob, cause error) {
	if errors.Is(cause, errReplayStopped) {
		return
	}
	for again := replayAgainFirst; ; again = min(2*again, replayAgainMost) {
		record := replayRecord{}
		err := r.reload(j, &record)
		if err == nil && record.State.Ended() {
			return // its last page was written after all
		}
		if err == nil {
			record.State, record.Ended = ReplayFailed, time.Now().UTC()
			if errors.Is(cause, errReplayCanceled) {
				record.State = ReplayCanceled
			} else {
				record.Why = cause.Error()
			}
			if err = r.engine.store.PutReplayJob(r.life, j.id, record.encode()); err == nil {
				r.show(j, record)
				return
			}
		}
		if r.life.Err() != nil {
			return
		}
		r.engine.logger.Warn("replay_end_not_noted", "replay", j.id, "error", err.Error())
		if !pause(r.life, again) {
			return
		}
	}
}
