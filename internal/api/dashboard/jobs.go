package dashboard

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

const (
	// maxRunning replays are under way at once.
	maxRunning = 4
	// maxKept are remembered with the running ones.
	maxKept = 20
)

// jobs are bulk replays. They belong to the dashboard and not to a request, so
// that one goes on when its page is closed.
type jobs struct {
	stopAll context.CancelFunc
	ctx     context.Context //nolint:containedctx // the life of the jobs, which no request bounds
	wg      sync.WaitGroup

	mu   sync.Mutex
	last int
	all  []*job // oldest first, at most maxKept
}

// job is one bulk replay.
type job struct {
	id     int
	filter engine.DeliveryFilter
	total  int
	begun  time.Time
	cancel context.CancelFunc

	mu      sync.Mutex
	done    int
	ended   time.Time
	failure string
}

// jobView is a job at a moment.
type jobView struct {
	ID            int
	Tenant        string
	Subscriber    string
	Signature     string
	Done, Total   int
	Width         string // of the progress bar, 0 to 100
	Running       bool
	Failure, Took string
	Begun         time.Time
}

func newJobs() *jobs {
	j := &jobs{}
	j.ctx, j.stopAll = background()
	return j
}

func (j *jobs) close() {
	j.stopAll()
	j.wg.Wait()
}

// start begins a replay; false where too many are under way.
func (j *jobs) start(node Node, filter engine.DeliveryFilter, perSecond float64, total int) (int, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	for _, other := range j.all {
		if other.view().Running {
			running++
		}
	}
	if running >= maxRunning || j.ctx.Err() != nil {
		return 0, false
	}
	j.last++
	n := &job{id: j.last, filter: filter, total: total, begun: time.Now()}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(j.ctx)
	for i := 0; len(j.all) >= maxKept && i < len(j.all); {
		if j.all[i].view().Running {
			i++
			continue
		}
		j.all = append(j.all[:i:i], j.all[i+1:]...)
	}
	j.all = append(j.all, n)
	j.wg.Go(func() { n.run(ctx, node, perSecond) })
	return n.id, true
}

// run replays everything that matches, each dead letter once: what dies again
// meanwhile lies behind the cursor.
func (n *job) run(ctx context.Context, node Node, perSecond float64) {
	defer n.cancel()
	before := 0
	in := engine.ReplayInput{PerSecond: perSecond, Progress: func(replayed int) { n.reached(before + replayed) }}
	for {
		result, err := node.ReplayDead(ctx, n.filter, in)
		before += result.Replayed
		n.reached(before)
		if err != nil || result.Cursor == "" || before >= n.total {
			n.end(err)
			return
		}
		in.Cursor = result.Cursor
	}
}

func (n *job) reached(done int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = done
}

func (n *job) end(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = time.Now()
	switch {
	case errors.Is(err, context.Canceled):
		n.failure = "stopped before its end; what was replayed stays replayed"
	case err != nil:
		n.failure = "the node could not go on: " + err.Error()
	}
}

func (n *job) view() jobView {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := jobView{
		ID: n.id, Tenant: n.filter.Tenant, Subscriber: n.filter.Subscriber, Signature: n.filter.Signature, Done: n.done,
		Total: max(n.total, n.done), Running: n.ended.IsZero(), Failure: n.failure, Begun: n.begun,
	}
	width := 100.0
	if v.Running || v.Failure != "" {
		width = 100 * float64(v.Done) / float64(max(v.Total, 1))
	}
	v.Width = coordinate(width)
	end := n.ended
	if v.Running {
		end = time.Now()
	}
	v.Took = span(end.Sub(n.begun))
	return v
}

// list returns the jobs, newest first.
func (j *jobs) list() []jobView {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]jobView, 0, len(j.all))
	for _, n := range slices.Backward(j.all) {
		out = append(out, n.view())
	}
	return out
}

func (j *jobs) find(id string) *job {
	n, err := strconv.Atoi(id)
	if err != nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, known := range j.all {
		if known.id == n {
			return known
		}
	}
	return nil
}

func (j *jobs) get(id string) (jobView, bool) {
	n := j.find(id)
	if n == nil {
		return jobView{}, false
	}
	return n.view(), true
}

func (j *jobs) stop(id string) bool {
	n := j.find(id)
	if n == nil || !n.view().Running {
		return false
	}
	n.cancel()
	return true
}
