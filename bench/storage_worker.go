package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// storageTask is what the storage process is asked to do; each method uses some
// of its fields.
type storageTask struct {
	Dir         string
	Seed        uint64
	Publishers  int
	Events      int
	Body        int
	Rows        int // rows from First on
	First       int
	Subscribers int
	FanOut      int
	Reads       int
	Writers     int
	URL         string // of the receiver that the subscribers are at
}

// storageResult is what came of it.
type storageResult struct {
	Seconds  float64
	Syncs    int64
	Bytes    int64
	Latency  stats.Latency
	CDF      []stats.Point
	Floor    stats.Latency // heads: of queues that nothing was consumed from
	Open     float64       // s: of the store
	FirstRow float64       // s: from the beginning of Open to the first row with its event
	Backlogs int           // subscribers with a backlog
}

// storageProcess holds the store that is open between two calls.
type storageProcess struct {
	store *storage.Store
	syncs atomic.Int64
	bytes atomic.Int64
	rng   *rand.Rand
	// cursor is, for each subscriber, the last row that was handed in as
	// delivered: reads go on behind it, as a scheduler's do.
	cursor map[delivery.SubscriberNum]delivery.Seq
}

// ServeStorage is the storage benchmark's process: it answers calls until in
// ends.
func ServeStorage(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &storageProcess{}
	err := worker.Serve(ctx, in, out, map[string]worker.Method{
		"publish":  worker.Handle(s.publish),
		"raw":      worker.Handle(s.raw),
		"register": worker.Handle(s.register),
		"fill":     worker.Handle(s.fill),
		"open":     worker.Handle(s.openAndRead),
		"consume":  worker.Handle(s.consume),
		"heads":    worker.Handle(s.heads),
		"close":    func(context.Context, json.RawMessage) (any, error) { return nil, s.close() },
	})
	return errors.Join(err, s.close())
}

func (s *storageProcess) open(dir string) error {
	s.syncs.Store(0)
	s.bytes.Store(0)
	s.cursor = map[delivery.SubscriberNum]delivery.Seq{}
	var err error
	s.store, err = storage.Open(storage.Config{Dir: dir, Observer: storage.Observer{Batch: func(b storage.BatchInfo) {
		s.syncs.Add(1)
		s.bytes.Add(int64(b.Bytes))
	}}})
	return err
}

func (s *storageProcess) close() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

// publish lets publishers store single events side by side in a new store.
func (s *storageProcess) publish(ctx context.Context, t storageTask) (result storageResult, err error) {
	if err := s.open(t.Dir); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	events, err := newEventMaker("p", t.Body, t.Seed)
	if err != nil {
		return result, err
	}
	var next atomic.Int64
	took := make([][]time.Duration, t.Publishers)
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range t.Publishers {
		g.Go(func() error {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= t.Events {
					return nil
				}
				begin := time.Now()
				if err := publishAll(ctx, s.store, events.event(n, subscriberNum(n, t.Subscribers))); err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(begin))
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return result, err
	}
	result.Seconds = time.Since(start).Seconds()
	result.Syncs, result.Bytes = s.syncs.Load(), s.bytes.Load()
	result.Latency, result.CDF = latencyOf(took)
	return result, nil
}

func latencyOf(parts [][]time.Duration) (stats.Latency, []stats.Point) {
	var all []time.Duration
	for _, p := range parts {
		all = append(all, p...)
	}
	ms := make([]float64, len(all))
	for i, d := range all {
		ms[i] = stats.Millis(d)
	}
	const points = 200
	return stats.LatencyOf(all), stats.CDF(stats.Sorted(ms), points)
}

func subscriberNum(n, subscribers int) delivery.SubscriberNum {
	return delivery.SubscriberNum(n%subscribers + 1) //nolint:gosec // positive
}

// publishAll stores events; each of them must be new.
func publishAll(ctx context.Context, store *storage.Store, events ...*delivery.Published) error {
	for _, r := range store.Publish(ctx, events) {
		if r.Err != nil {
			return r.Err
		}
		if r.Deduplicated {
			return fmt.Errorf("event %s was published before", r.ID)
		}
	}
	return nil
}

// raw commits records of the same size to a bare database.
func (s *storageProcess) raw(ctx context.Context, t storageTask) (storageResult, error) {
	took, all, err := storage.RawCommits{Dir: t.Dir, Writers: t.Publishers, Commits: t.Events, Bytes: t.Body}.Run(ctx)
	r := storageResult{Seconds: all.Seconds()}
	r.Latency, r.CDF = latencyOf([][]time.Duration{took})
	return r, err
}

const (
	fillers   = 4
	fillBatch = 1000 // rows of one publish call
)

// fill queues rows First to First+Rows. Row n is of subscriber n modulo their
// number; FanOut consecutive rows share an event.
func (s *storageProcess) fill(ctx context.Context, t storageTask) (storageResult, error) {
	if s.store == nil {
		if err := s.open(t.Dir); err != nil {
			return storageResult{}, err
		}
	}
	events, err := newEventMaker("f", t.Body, t.Seed)
	if err != nil {
		return storageResult{}, err
	}
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fillers)
	for from := t.First; from < t.First+t.Rows && ctx.Err() == nil; from += fillBatch {
		g.Go(func() error {
			var batch []*delivery.Published
			for row := from; row < min(from+fillBatch, t.First+t.Rows); row += t.FanOut {
				subs := make([]delivery.SubscriberNum, min(t.FanOut, t.First+t.Rows-row))
				for i := range subs {
					subs[i] = subscriberNum(row+i, t.Subscribers)
				}
				batch = append(batch, events.event(row, subs...))
			}
			return publishAll(ctx, s.store, batch...)
		})
	}
	err = g.Wait()
	return storageResult{Seconds: time.Since(start).Seconds(), Syncs: s.syncs.Load(), Bytes: s.bytes.Load()}, err
}

// openAndRead opens a store with a backlog and reads the first row that there
// is, with its event, the way a scheduler does after a start.
func (s *storageProcess) openAndRead(ctx context.Context, t storageTask) (r storageResult, err error) {
	start := time.Now()
	if err := s.open(t.Dir); err != nil {
		return r, err
	}
	r.Open = time.Since(start).Seconds()
	for sub, err := range s.store.Backlogs(ctx) {
		if err != nil {
			return r, err
		}
		if r.Backlogs++; r.Backlogs > 1 {
			continue
		}
		rows, err := s.store.Ready(sub, delivery.PriorityNormal, 0, 1)
		if err != nil || len(rows) == 0 {
			return r, fmt.Errorf("subscriber %d has a backlog without a row: %w", sub, err)
		}
		if _, err := s.store.Event(ctx, rows[0].Event); err != nil {
			return r, err
		}
		r.FirstRow = time.Since(start).Seconds()
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// maxUncommitted bounds outcomes on their way, like the scheduler's.
const maxUncommitted = 8192

// consume delivers Rows rows, a page from each subscriber in turn from number
// First on, and waits until all outcomes are durable. Seconds tells how long it
// took; Backlogs is how many were delivered.
func (s *storageProcess) consume(ctx context.Context, t storageTask) (storageResult, error) {
	const page = 64
	start := time.Now()
	slots := make(chan struct{}, maxUncommitted)
	var failed atomic.Pointer[error]
	var r storageResult
	idle := 0
	for sub := t.First; r.Backlogs < t.Rows && idle < t.Subscribers; sub++ {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		num := subscriberNum(sub, t.Subscribers)
		rows, err := s.store.Ready(num, delivery.PriorityNormal, s.cursor[num], min(page, t.Rows-r.Backlogs))
		if err != nil {
			return r, err
		}
		if len(rows) == 0 {
			idle++
			continue
		}
		idle = 0
		s.cursor[num] = rows[len(rows)-1].Seq
		s.deliver(rows, slots, &failed)
		r.Backlogs += len(rows)
	}
	for range maxUncommitted {
		slots <- struct{}{} // all of them are free again
	}
	if err := failed.Load(); err != nil {
		return r, *err
	}
	r.Seconds, r.Syncs, r.Bytes = time.Since(start).Seconds(), s.syncs.Load(), s.bytes.Load()
	return r, nil
}

// deliver hands in the outcomes of a page, one call each, as an actor does.
func (s *storageProcess) deliver(rows []delivery.Row, slots chan struct{}, failed *atomic.Pointer[error]) {
	lease := s.store.Lease()
	for _, row := range rows {
		slots <- struct{}{}
		s.store.Commit([]delivery.Fact{delivered(lease, row)}, func(err error) {
			if err != nil {
				failed.Store(&err)
			}
			<-slots
		})
	}
}

// heads times reads of the first row of random subscribers' queues, from the
// very beginning of the queue, while writers publish. In turn with them it times
// reads of a queue of one row that nothing was ever consumed from: the floor.
func (s *storageProcess) heads(ctx context.Context, t storageTask) (storageResult, error) {
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(t.Seed, 0x6865616473)) //nolint:gosec // repeatable, not secret
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := newEventMaker(fmt.Sprintf("w%d", t.First), t.Body, t.Seed)
	if err != nil {
		return storageResult{}, err
	}
	var writers errgroup.Group
	var next atomic.Int64
	for range t.Writers {
		writers.Go(func() error {
			for stop.Err() == nil {
				n := int(next.Add(1)) - 1
				// Not with stop: an event on its way is let through.
				if err := publishAll(ctx, s.store, events.event(n, subscriberNum(n, t.Subscribers))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	took, floor, err := s.readHeads(ctx, t)
	cancel()
	r := storageResult{}
	r.Latency, r.CDF = latencyOf([][]time.Duration{took})
	r.Floor, _ = latencyOf([][]time.Duration{floor})
	return r, errors.Join(err, writers.Wait(), ctx.Err())
}

func (s *storageProcess) readHeads(ctx context.Context, t storageTask) (took, floor []time.Duration, err error) {
	events, err := newEventMaker(fmt.Sprintf("u%d", t.First), t.Body, t.Seed)
	if err != nil {
		return nil, nil, err
	}
	untouched := delivery.SubscriberNum(t.Subscribers + 1 + t.First) //nolint:gosec // positive
	if err := publishAll(ctx, s.store, events.event(0, untouched)); err != nil {
		return nil, nil, err
	}
	read := func(num delivery.SubscriberNum, into *[]time.Duration) []delivery.Row {
		begin := time.Now()
		rows, e := s.store.Ready(num, delivery.PriorityNormal, 0, 1)
		*into = append(*into, time.Since(begin))
		err = errors.Join(err, e)
		return rows
	}
	for range t.Reads {
		read(subscriberNum(s.rng.IntN(t.Subscribers), t.Subscribers), &took)
		rows := read(untouched, &floor)
		if err != nil || ctx.Err() != nil || len(rows) != 1 {
			return nil, nil, errors.Join(err, ctx.Err(), fmt.Errorf("%d rows, want 1", len(rows)))
		}
	}
	// It is not part of the backlog.
	rows := read(untouched, new([]time.Duration))
	done := make(chan error, 1)
	s.store.Commit([]delivery.Fact{delivered(s.store.Lease(), rows[0])}, func(err error) { done <- err })
	return took, floor, errors.Join(err, <-done)
}
