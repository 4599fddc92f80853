package storage

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// cpuTime is the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func onDisk(b *testing.B) func(*Config) {
	dir := b.TempDir()
	return func(c *Config) { c.Dir, c.FS, c.MemTable, c.Watermark.Bytes = dir, nil, 64<<20, -1 }
}

// BenchmarkPublish stores events of 1 KiB for one subscriber each, with a number
// of publishers side by side, on a real disk.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 64} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			s := openBench(b, vfs.Default, onDisk(b))
			payload := bytes.Repeat([]byte("x"), 1024)
			var n atomic.Int64
			start, cpu := time.Now(), cpuTime(b)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range publishers {
				wg.Go(func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						id := fmt.Sprintf("evt_%d", i)
						x := &delivery.Published{
							Event: &delivery.Event{
								Key: eventKey(start.Add(time.Duration(i)*time.Microsecond), uint64(i)), ID: id, Tenant: 7,
								Topic: "order.created", ContentType: "application/json", Payload: payload, Priority: delivery.PriorityNormal,
							},
							Dedupe:  &delivery.Dedupe{ID: id},
							Targets: []delivery.Target{{Subscriber: delivery.SubscriberNum(i%1000 + 1), Lane: delivery.PriorityNormal, Leased: true}},
						}
						if r := s.Publish(context.Background(), []*delivery.Published{x}); r[0].Err != nil {
							b.Error(r[0].Err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(b.N)/float64(s.batch.Load()), "events/fsync")
		})
	}
}

// BenchmarkOutcome commits delivered outcomes the way an actor does: one call
// each, nobody waits.
func BenchmarkOutcome(b *testing.B) {
	s := openBench(b, vfs.Default, onDisk(b))
	start := time.Now()
	const chunk = 1000
	var rows []delivery.Row
	for i := 0; i < b.N; i += chunk {
		var list []*delivery.Published
		for j := range chunk {
			n := uint64(i + j)
			list = append(list, eventAt(start.Add(time.Duration(n)*time.Microsecond), n, fmt.Sprint(n), delivery.SubscriberNum(n%1000+1)))
		}
		for k, r := range s.Publish(context.Background(), list) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			rows = append(rows, delivery.Row{
				Subscriber: list[k].Targets[0].Subscriber, Event: r.Event, Lane: delivery.PriorityNormal,
				Seq: r.Position, First: r.Position, EnteredAt: r.Event.Time(),
			})
		}
	}
	facts := make([][]delivery.Fact, b.N)
	for i := range facts {
		facts[i] = []delivery.Fact{s.delivered(rows[i])}
	}
	cpu := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	wg.Add(b.N)
	done := func(err error) {
		if err != nil {
			b.Error(err)
		}
		wg.Done()
	}
	for i := range facts {
		s.Commit(facts[i], done)
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
}

// BenchmarkQueueHead reads the head of a queue from which a great many rows were
// just consumed.
func BenchmarkQueueHead(b *testing.B) {
	const consumed = 1_000_000
	s := openBench(b, vfs.Default, onDisk(b))
	s.fillQueue(consumed, 9)
	s.consume(9)
	s.fillQueue(100, 9)
	b.ResetTimer()
	for range b.N {
		if rows, err := s.Ready(9, delivery.PriorityNormal, 0, 100); err != nil || len(rows) != 100 {
			b.Fatal(len(rows), err)
		}
	}
}
