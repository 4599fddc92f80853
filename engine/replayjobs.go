package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// ReplayState is how far a replay job has come.
type ReplayState string

// The states of replay jobs.
//
//	pending ─► running ─► done
//	   │          ├─────► failed      (Why says why)
//	   └──────────┴─────► canceled
//
// What a restart interrupts is pending until the scheduler is up, and goes on
// where it was.
const (
	ReplayPending  ReplayState = "pending" // waits for one of the places, or for the node's start
	ReplayRunning  ReplayState = "running"
	ReplayDone     ReplayState = "done"
	ReplayCanceled ReplayState = "canceled"
	ReplayFailed   ReplayState = "failed"
)

// Ended reports whether nothing more will come of a job.
func (s ReplayState) Ended() bool {
	return s == ReplayDone || s == ReplayCanceled || s == ReplayFailed
}

// ReplayJob is a bulk replay that needs no request: it goes on over restarts.
type ReplayJob struct {
	ID string
	// Filter says which dead letters, by the names of the time it was made; the job
	// itself holds numbers, so that a tenant that is deleted and made again is
	// another one. Those are meant that were dead when the job was made.
	Filter    DeliveryFilter
	PerSecond float64 // 0 = no limit
	State     ReplayState
	Why       string // with failed
	// Total is how many dead letters matched when the job began, if Counted.
	Total   int
	Counted bool
	// Replayed were replayed, PassedOver were found and left alone: somebody had
	// replayed or purged them meanwhile, or their payload was gone.
	Replayed, PassedOver int
	// TenantGone: its tenant was deleted since. Another one may have its id.
	TenantGone bool
	// Zero = not yet.
	CreatedAt, StartedAt, EndedAt time.Time
}

const (
	// maxReplaysRunning jobs run at once; others wait.
	maxReplaysRunning = 4
	// maxReplaysWaiting bounds the jobs that have not ended.
	maxReplaysWaiting = 100
	// replaysKept of those that have ended are remembered, the last.
	replaysKept = 100
	// maxReplayRate bounds per_second.
	maxReplayRate = 100_000
)

// replayRecord is a job as it is stored.
type replayRecord struct {
	Tenant     delivery.TenantNum     `json:"tenant"`
	Subscriber delivery.SubscriberNum `json:"subscriber,omitempty"`
	Filter     replayFilter           `json:"filter"`
	PerSecond  float64                `json:"per_second,omitempty"`

	State      ReplayState `json:"state"`
	Why        string      `json:"why,omitempty"`
	Total      int         `json:"total,omitempty"`
	Counted    bool        `json:"counted,omitempty"`
	Replayed   int         `json:"replayed,omitempty"`
	PassedOver int         `json:"passed_over,omitempty"`
	Cursor     string      `json:"cursor,omitempty"` // the listing goes on after it
	Created    time.Time   `json:"created"`          // what died before it is meant
	Started    time.Time   `json:"started,omitzero"`
	Ended      time.Time   `json:"ended,omitzero"`
}

// replayFilter is a filter as it was given.
type replayFilter struct {
	Tenant     string    `json:"tenant"`
	Subscriber string    `json:"subscriber,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Topic      string    `json:"topic,omitempty"`
	Signature  string    `json:"signature,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Until      time.Time `json:"until,omitzero"`
}

// filter is what the job lists by.
func (r *replayRecord) filter() storage.Filter {
	reason, _ := delivery.ParseReason(r.Filter.Reason) // checked when it was made
	return storage.Filter{
		Tenant: r.Tenant, Subscriber: r.Subscriber, Reason: reason, Topic: r.Filter.Topic, Signature: r.Filter.Signature,
		Since: r.Filter.Since, Until: r.Filter.Until, DiedBefore: r.Created,
	}
}

// encode cannot fail: what has no JSON was refused when the job was made.
func (r *replayRecord) encode() []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode replay record: %v", err))
	}
	return body
}

// replayJob is a job in memory.
type replayJob struct {
	id     string
	record replayRecord // what is stored, but for a page that is being written; guarded by replays.mu
	active bool         // it has one of the places; guarded by replays.mu
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed once its end is stored
}

func (j *replayJob) view() ReplayJob {
	r := &j.record
	out := ReplayJob{
		ID: j.id, PerSecond: r.PerSecond, State: r.State, Why: r.Why, Total: r.Total, Counted: r.Counted,
		Replayed: r.Replayed, PassedOver: r.PassedOver, CreatedAt: r.Created, StartedAt: r.Started, EndedAt: r.Ended,
		Filter: DeliveryFilter{
			Tenant: r.Filter.Tenant, Subscriber: r.Filter.Subscriber, Reason: r.Filter.Reason, Topic: r.Filter.Topic,
			Signature: r.Filter.Signature, Since: r.Filter.Since, Until: r.Filter.Until,
		},
	}
	switch {
	case r.State.Ended():
	case j.active:
		out.State = ReplayRunning
	default:
		out.State = ReplayPending
	}
	return out
}

// replays are the jobs of a node.
//
// Invariant: one goroutine per job that has a place, and one per waiting job that
// is being canceled, none for any other; stop waits for them. What memory says of
// a job is never ahead of the store, but for the state running. mu is not held
// while anything is read or written.
type replays struct {
	engine *Engine
	life   context.Context //nolint:containedctx // the life of the jobs, which no request bounds
	end    context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	byID    map[string]*replayJob
	waiting []*replayJob // in the order of their ids: the oldest goes first
	running int
	started bool // the scheduler is up
	stopped bool
}

// loadReplays reads the jobs. They go on once the scheduler is up.
func (e *Engine) loadReplays() error {
	r := &replays{engine: e, byID: map[string]*replayJob{}}
	r.life, r.end = context.WithCancelCause(context.Background())
	e.replays = r
	e.onStopped("replays", r.stop) // where there was no Start
	stored, err := e.store.ReplayJobs()
	if err != nil {
		return fmt.Errorf("read replay jobs: %w", err)
	}
	for _, row := range stored {
		var record replayRecord
		if err := json.Unmarshal(row.Record, &record); err != nil {
			e.logger.Error("replay_job_unreadable", "replay", row.ID, "error", err.Error())
			continue
		}
		r.holdLocked(row.ID, record)
	}
	return nil
}

// holdLocked takes a job that is stored; the caller holds mu, or is alone.
func (r *replays) holdLocked(id string, record replayRecord) *replayJob {
	j := &replayJob{id: id, record: record, ended: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancelCause(r.life)
	r.byID[id] = j
	if record.State.Ended() {
		j.cancel(nil)
		close(j.ended)
	} else {
		r.waiting = append(r.waiting, j)
	}
	return j
}

// StartReplay makes a job that replays the dead letters that match and are dead
// now, at most perSecond a second; 0 = no limit. It is durable when this returns.
func (e *Engine) StartReplay(ctx context.Context, in DeliveryFilter, perSecond float64) (ReplayJob, error) {
	f, err := e.deadFilter(in)
	if err != nil {
		return ReplayJob{}, err
	}
	if !(perSecond >= 0 && perSecond <= maxReplayRate) {
		var bad faults
		bad.add("per_second", strconv.FormatFloat(perSecond, 'g', -1, 64), "0 (no limit) to "+strconv.Itoa(maxReplayRate), "leave it out for no limit")
		return ReplayJob{}, bad.err()
	}
	for name, at := range map[string]time.Time{"since": in.Since, "until": in.Until} {
		if _, err := at.MarshalJSON(); err != nil {
			var bad faults
			bad.add(name, at.String(), "a time of the years 0 to 9999", "leave it out")
			return ReplayJob{}, bad.err()
		}
	}
	now := time.Now().UTC()
	return e.replays.add(ctx, newReplayID(now), replayRecord{
		Tenant: f.Tenant, Subscriber: f.Subscriber, PerSecond: perSecond, State: ReplayPending, Created: now,
		Filter: replayFilter{
			Tenant: in.Tenant, Subscriber: in.Subscriber, Reason: in.Reason, Topic: in.Topic, Signature: in.Signature,
			Since: in.Since, Until: in.Until,
		},
	})
}

// newReplayID begins with the millisecond it is made in, so that ids are in the
// order of making.
func newReplayID(now time.Time) string {
	var b [tokenIDBytes]byte
	_, _ = rand.Read(b[6:])                                                                                // never fails: crypto/rand ends the process instead
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|uint64(binary.BigEndian.Uint16(b[6:8]))) //nolint:gosec // after 1970
	return tokenIDs.EncodeToString(b[:])
}

func (r *replays) add(ctx context.Context, id string, record replayRecord) (ReplayJob, error) {
	e := r.engine
	r.mu.Lock()
	n := len(r.waiting) + r.running
	r.mu.Unlock()
	if n >= maxReplaysWaiting { // a few more may slip in at once, which does no harm
		return ReplayJob{}, &ConflictError{
			Field: "replays", Value: strconv.Itoa(n), Rule: "at most " + strconv.Itoa(maxReplaysWaiting) + " run or wait at a time",
			Hint: "wait until one has ended, or cancel one",
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayFinish)
	defer cancel()
	if err := e.store.PutReplayJob(ctx, id, record.encode()); err != nil {
		if errors.Is(err, delivery.ErrUnknownCommit) {
			// Nobody will be told its id, so it must not begin after a restart.
			e.errand(func(ctx context.Context) { r.forget(ctx, id) })
		}
		return ReplayJob{}, e.storeFault(err)
	}
	e.logger.Info("replay_job_made", "replay", id, "tenant", record.Filter.Tenant, "subscriber", record.Filter.Subscriber, "per_second", record.PerSecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.holdLocked(id, record)
	r.fillLocked()
	return j.view(), nil
}

func (r *replays) forget(ctx context.Context, ids ...string) {
	if err := r.engine.store.DeleteReplayJobs(ctx, ids...); err != nil {
		r.engine.logger.Warn("replay_jobs_not_forgotten", "jobs", len(ids), "error", err.Error())
	}
}

// GetReplay returns a job.
func (e *Engine) GetReplay(_ context.Context, id string) (ReplayJob, error) {
	r := e.replays
	r.mu.Lock()
	j, ok := r.byID[id]
	if !ok {
		r.mu.Unlock()
		return ReplayJob{}, noReplay(id)
	}
	out, tenant := j.view(), j.record.Tenant
	r.mu.Unlock()
	_, err := e.directory.Tenant(tenant)
	out.TenantGone = errors.Is(err, delivery.ErrNoTenant)
	return out, nil
}

func noReplay(id string) error {
	return fmt.Errorf("replay %q: %w; the last %d that ended are kept", clipped(id), ErrNotFound, replaysKept)
}

// ListReplays returns a page of the jobs, the newest first; with a tenant, its own
// alone.
func (e *Engine) ListReplays(_ context.Context, tenant string, page Page) ([]ReplayJob, string, error) {
	r, num := e.replays, delivery.TenantNum(0)
	if tenant != "" {
		t, err := e.tenant(tenant)
		if err != nil {
			return nil, "", err
		}
		num = t.Num
	}
	r.mu.Lock()
	all := make([]ReplayJob, 0, len(r.byID))
	for id, j := range r.byID {
		if (num == 0 || num == j.record.Tenant) && (page.Cursor == "" || id < page.Cursor) {
			all = append(all, j.view())
		}
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b ReplayJob) int { return -strings.Compare(a.ID, b.ID) })
	next := ""
	if most := page.limit(); len(all) > most {
		all = all[:most]
		next = all[most-1].ID
	}
	return all, next, nil
}

// CancelReplay ends a job. What it replayed stays replayed, and is counted. One
// that has ended is returned as it is.
func (e *Engine) CancelReplay(ctx context.Context, id string) (ReplayJob, error) {
	r := e.replays
	r.mu.Lock()
	j, ok := r.byID[id]
	if !ok {
		r.mu.Unlock()
		return ReplayJob{}, noReplay(id)
	}
	j.cancel(errReplayCanceled)
	if i := slices.Index(r.waiting, j); i >= 0 && !r.stopped {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.wg.Go(func() { r.finish(j, errReplayCanceled) })
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, replayFinish)
	defer cancel()
	select {
	case <-j.ended:
		return e.GetReplay(ctx, id)
	case <-ctx.Done():
		return ReplayJob{}, &UnavailableError{
			Reason: "the replay stops, but the store has not taken note of it yet", RetryAfter: unavailableRetry,
		}
	}
}

// gone ends the jobs of a tenant or a subscriber that was deleted. It only tells
// them, and does not wait.
func (r *replays) gone(c storage.Change) {
	if !c.Deleted || c.Doc.Kind != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.byID {
		switch {
		case c.Subscriber != 0 && j.record.Subscriber == c.Subscriber:
			j.cancel(errReplaySubscriberGone)
		case c.Subscriber == 0 && j.record.Tenant == c.Tenant:
			j.cancel(errReplayTenantGone)
		}
	}
}

// outdatedLocked returns the jobs that ended before the last ones that are kept,
// and takes them out of memory.
func (r *replays) outdatedLocked() (ids []string) {
	var ended []*replayJob
	for _, j := range r.byID {
		if j.record.State.Ended() {
			ended = append(ended, j)
		}
	}
	if len(ended) <= replaysKept {
		return nil
	}
	slices.SortFunc(ended, func(a, b *replayJob) int {
		return cmp.Or(a.record.Ended.Compare(b.record.Ended), strings.Compare(a.id, b.id))
	})
	for _, j := range ended[:len(ended)-replaysKept] {
		delete(r.byID, j.id)
		ids = append(ids, j.id)
	}
	return ids
}
