package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
)

// PublishMeasure is one round of storing events, with its floor.
type PublishMeasure struct {
	Round      int           `json:"round"`
	Publishers int           `json:"publishers"`
	Events     int           `json:"events"`
	Rate       float64       `json:"rate"` // events a second
	Raw        float64       `json:"raw"`  // bare synced commits a second, as many writers
	Ratio      float64       `json:"ratio"`
	Syncs      float64       `json:"syncs_per_event"`
	Bytes      float64       `json:"log_bytes_per_event"`
	CPU        float64       `json:"cpu_ms_per_1000"` // of the process
	Latency    stats.Latency `json:"latency"`
	RawLatency stats.Latency `json:"raw_latency"`
	Disk       stats.Latency `json:"disk_sync"`
}

// BacklogMeasure is a store with a large backlog.
type BacklogMeasure struct {
	Rows        int           `json:"rows"`
	Subscribers int           `json:"subscribers"`
	FillRate    float64       `json:"fill_rate"` // rows a second
	FillPeak    int64         `json:"fill_rss_max"`
	Killed      OpenMeasure   `json:"killed"` // the process was killed, its log must be replayed; no file is in the kernel's cache
	Cold        OpenMeasure   `json:"cold"`   // the store was closed; no file is in the kernel's cache
	Warm        OpenMeasure   `json:"warm"`
	Consumed    int           `json:"consumed"`
	ConsumeRate float64       `json:"consume_rate"` // outcomes a second, one writer
	ConsumePeak int64         `json:"consume_rss_max"`
	Before      stats.Latency `json:"heads_before"`       // reads of heads, writers active
	After       stats.Latency `json:"heads_after"`        // right after the rows were consumed
	FloorBefore stats.Latency `json:"heads_before_floor"` // of a queue of one row that nothing was consumed from
	FloorAfter  stats.Latency `json:"heads_after_floor"`
	BeforeCDF   []stats.Point `json:"heads_before_cdf"`
	AfterCDF    []stats.Point `json:"heads_after_cdf"`
	Node        *NodeMeasure  `json:"node,omitempty"` // nil = all rows were consumed before
	Disk        stats.Latency `json:"disk_sync"`
}

// OpenMeasure is one opening, in a fresh process.
type OpenMeasure struct {
	Open     float64 `json:"open_s"`
	FirstRow float64 `json:"first_row_s"` // from the beginning of Open, with its event
	All      float64 `json:"all_backlogs_s"`
	Found    int     `json:"backlogs"` // subscribers
	RSS      int64   `json:"rss"`
}

// StorageData are the raw figures of a run, in its JSON report.
type StorageData struct {
	Config  StorageConfig    `json:"config"`
	Publish []PublishMeasure `json:"publish,omitempty"`
	Backlog *BacklogMeasure  `json:"backlog,omitempty"`
}

// Storage measures the store alone, in processes of its own.
func Storage(ctx context.Context, c StorageConfig) (*report.Report, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench storage: %w", err)
	}
	rep, _ := c.Run.begin("dispatcher bench storage")
	r := &storageRun{c: c, progress: newProgress(c.Run.Progress), data: StorageData{Config: c}}
	if err := r.all(ctx); err != nil {
		return nil, fmt.Errorf("bench storage: %w", err)
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

type storageRun struct {
	c        StorageConfig
	progress *progress
	dir      *host.RunDir
	fs       string
	stores   int
	data     StorageData
	failures []string
}

func (r *storageRun) all(ctx context.Context) (err error) {
	if r.dir, err = r.c.Run.open(r.progress); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.dir.Remove()) }()
	if r.fs, err = host.Disk(r.dir.Path); err != nil {
		return err
	}
	if slices.Contains(r.c.Parts, "publish") {
		for round := range r.c.Rounds {
			for _, n := range r.c.Publishers {
				if err := r.publish(ctx, round, n); err != nil {
					return fmt.Errorf("%d publishers: %w", n, err)
				}
			}
		}
	}
	if slices.Contains(r.c.Parts, "backlog") {
		return r.backlog(ctx)
	}
	return nil
}

func (r *storageRun) newDir() string {
	r.stores++
	return r.dir.Join("store" + strconv.Itoa(r.stores))
}

// process runs a step in a fresh process.
func (r *storageRun) process(do func(*worker.Worker) error) (err error) {
	w, err := worker.StartWorker(worker.Command{
		Name: "store", Args: []string{"bench", "worker", "storage"}, Cores: r.c.Run.Cores, Log: r.dir.Join("store.log"),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.Kill()
			return
		}
		err = w.Stop(stopMost)
	}()
	return do(w)
}

// publish measures one number of publishers, and right before it as many
// writers on a bare database.
func (r *storageRun) publish(ctx context.Context, round, publishers int) error {
	events := min(r.c.Events, 500*publishers)
	task := storageTask{Publishers: publishers, Events: events, Body: r.c.Body, Subscribers: 1000, Seed: r.c.Run.Seed}
	m := PublishMeasure{Round: round + 1, Publishers: publishers, Events: events}
	var err error
	if m.Disk, err = host.Syncs(r.dir.Path, diskProbe, 0); err != nil {
		return err
	}
	var raw, got storageResult
	task.Dir = r.newDir()
	if err := r.process(func(w *worker.Worker) error { return w.Call(ctx, "raw", task, &raw) }); err != nil {
		return err
	}
	task.Dir = r.newDir()
	err = r.process(func(w *worker.Worker) error {
		before, err := host.UsageOf(w.PID())
		if err != nil {
			return err
		}
		if err := w.Call(ctx, "publish", task, &got); err != nil {
			return err
		}
		after, err := host.UsageOf(w.PID())
		m.CPU = (after.CPU - before.CPU).Seconds() * 1000 / (float64(events) / 1000)
		return err
	})
	if err != nil {
		return err
	}
	m.Rate, m.Raw = float64(events)/got.Seconds, float64(events)/raw.Seconds
	m.Ratio = m.Rate / m.Raw
	m.Syncs, m.Bytes = float64(got.Syncs)/float64(events), float64(got.Bytes)/float64(events)
	m.Latency, m.RawLatency = got.Latency, raw.Latency
	r.data.Publish = append(r.data.Publish, m)
	r.progress.say("round %d: %d publishers: %.0f events/s, %.3f fsyncs/event, %.2f of %.0f bare commits/s",
		m.Round, publishers, m.Rate, m.Syncs, m.Ratio, m.Raw)
	return nil
}

// steps is how many parts a long step is cut into, so that progress is seen.
const steps = 10

// backlog fills a store, opens it anew, reads and consumes it.
func (r *storageRun) backlog(ctx context.Context) (err error) {
	to, err := startArrivals(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	task := storageTask{
		URL: to.url,
		Dir: r.newDir(), Subscribers: r.c.Subscribers, FanOut: r.c.FanOut, Body: r.c.RowBody, Seed: r.c.Run.Seed,
		Reads: r.c.Reads, Writers: r.c.Writers,
	}
	m := &BacklogMeasure{Rows: r.c.Rows, Subscribers: r.c.Subscribers}
	r.data.Backlog = m
	if m.Disk, err = host.Syncs(r.dir.Path, diskProbe, 0); err != nil {
		return err
	}
	if err := r.register(ctx, task); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := r.process(func(w *worker.Worker) error { return r.fillBacklog(ctx, w, task, m) }); !errors.Is(err, errKilled) {
		return fmt.Errorf("fill: %w", err)
	}
	for _, into := range []*OpenMeasure{&m.Killed, &m.Cold, &m.Warm} {
		if into != &m.Warm {
			if err := host.Forget(task.Dir); err != nil {
				return err
			}
		}
		if err := r.process(func(w *worker.Worker) error { return r.reopen(ctx, w, task, into) }); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	r.progress.say("opened: first row after %.3f s (killed), %.3f s (cold), %.3f s (warm); RSS %s",
		m.Killed.FirstRow, m.Cold.FirstRow, m.Warm.FirstRow, report.Bytes(m.Killed.RSS))
	if err := r.process(func(w *worker.Worker) error { return r.consume(ctx, w, task, m) }); !errors.Is(err, errKilled) {
		return fmt.Errorf("consume: %w", err)
	}
	if left := r.c.Rows - m.Consumed; left > 0 {
		m.Node, err = r.wholeNode(ctx, task, to, left)
	}
	return err
}

// errKilled: a step left its process to be killed with the store open.
var errKilled = errors.New("killed with the store open")

func (r *storageRun) fillBacklog(ctx context.Context, w *worker.Worker, task storageTask, m *BacklogMeasure) error {
	seconds := 0.0
	for _, part := range parts(r.c.Rows, steps*fillBatch) {
		task.First, task.Rows = part[0], part[1]
		var got storageResult
		if err := w.Call(ctx, "fill", task, &got); err != nil {
			return err
		}
		seconds += got.Seconds
		r.progress.say("filled %d of %d rows, %.0f rows/s", part[0]+part[1], r.c.Rows, float64(part[0]+part[1])/seconds)
	}
	m.FillRate = float64(r.c.Rows) / seconds
	usage, err := host.UsageOf(w.PID())
	m.FillPeak = usage.Peak
	if err != nil {
		return err
	}
	return errKilled
}

// parts cuts a count into at most steps parts of at least least.
func parts(count, least int) (out [][2]int) {
	size := max(least, (count+steps-1)/steps)
	for from := 0; from < count; from += size {
		out = append(out, [2]int{from, min(size, count-from)})
	}
	return out
}

func (r *storageRun) reopen(ctx context.Context, w *worker.Worker, task storageTask, into *OpenMeasure) error {
	var got storageResult
	if err := w.Call(ctx, "open", task, &got); err != nil {
		return err
	}
	usage, err := host.UsageOf(w.PID())
	if err != nil {
		return err
	}
	*into = OpenMeasure{Open: got.Open, FirstRow: got.FirstRow, All: got.Seconds, Found: got.Backlogs, RSS: usage.RSS}
	if got.Backlogs != r.c.Subscribers {
		r.failures = append(r.failures, fmt.Sprintf("%d subscribers have a backlog, want %d", got.Backlogs, r.c.Subscribers))
	}
	return w.Call(ctx, "close", nil, nil)
}

func (r *storageRun) consume(ctx context.Context, w *worker.Worker, task storageTask, m *BacklogMeasure) error {
	var heads storageResult
	if err := w.Call(ctx, "open", task, nil); err != nil {
		return err
	}
	task.First = 0
	if err := w.Call(ctx, "heads", task, &heads); err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	m.Before, m.BeforeCDF, m.FloorBefore = heads.Latency, heads.CDF, heads.Floor
	seconds := 0.0
	for i, part := range parts(r.c.Consume, 1000) {
		task.First, task.Rows = i*7919, part[1] // another subscriber first each time
		var got storageResult
		if err := w.Call(ctx, "consume", task, &got); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		seconds += got.Seconds
		m.Consumed += got.Backlogs
		r.progress.say("consumed %d of %d rows, %.0f rows/s", m.Consumed, r.c.Consume, float64(m.Consumed)/seconds)
	}
	m.ConsumeRate = quotient(float64(m.Consumed), seconds)
	task.First = 1
	if err := w.Call(ctx, "heads", task, &heads); err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	m.After, m.AfterCDF, m.FloorAfter = heads.Latency, heads.CDF, heads.Floor
	r.progress.say("heads of queues: p99 %.3f ms before, %.3f ms after", m.Before.P99, m.After.P99)
	usage, err := host.UsageOf(w.PID())
	m.ConsumePeak = usage.Peak
	if err != nil {
		return err
	}
	return errKilled
}
