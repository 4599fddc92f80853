package storage

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// history is a store that grows: backlogs are published and drained, one after the
// other, and everything that was delivered stays.
type history struct {
	*bench
	b      *testing.B
	rng    *rand.ChaCha8
	size   int // bytes of a payload, about
	n      uint64
	cursor [historySubs + 1]delivery.Seq
}

const (
	historySubs    = 100
	historyPublish = 64 // events of a batch
	historyPage    = 64 // rows that are read at once
)

// payload is JSON in which nothing repeats.
func (h *history) payload() []byte {
	raw := make([]byte, h.size*3/4)
	_, _ = h.rng.Read(raw) // never fails
	return append(base64.StdEncoding.AppendEncode([]byte(`{"v":"`), raw), `"}`...)
}

func (h *history) fill(backlog int) {
	for range backlog / historyPublish {
		list := make([]*delivery.Published, historyPublish)
		for i := range list {
			h.n++
			sub := delivery.SubscriberNum(h.n%historySubs + 1)
			// Publishers overtake each other: the halves of 4096 events share their time.
			nth := h.n&^4095 | h.n<<1&4094 | h.n>>11&1
			list[i] = eventAt(h.start.Add(time.Duration(nth)*100*time.Microsecond), nth, fmt.Sprint("evt-", h.n), sub)
			list[i].Event.Payload = h.payload()
		}
		for _, r := range h.Publish(context.Background(), list) {
			noErr(h.b, r.Err)
		}
	}
}

// drain delivers what is there, a page of each subscriber in turn. It returns the
// processor time of the reads and how many rows they found.
func (h *history) drain() (read time.Duration, rows int) {
	runtime.LockOSThread() // its processor time is measured
	defer runtime.UnlockOSThread()
	done := make(chan error, 4096)
	pending := 0
	for idle := 0; idle < historySubs; {
		for sub := range delivery.SubscriberNum(historySubs) {
			sub++
			begin := threadTime(h.b)
			page, err := h.Ready(sub, delivery.PriorityNormal, h.cursor[sub], historyPage)
			noErr(h.b, err)
			if len(page) == 0 {
				idle++
				continue
			}
			keys := make([]delivery.EventKey, len(page))
			for i := range page {
				keys[i] = page[i].Event
			}
			events, err := h.EventPage(keys, 1<<20)
			noErr(h.b, err)
			read += threadTime(h.b) - begin
			rows += len(page)
			idle, h.cursor[sub] = 0, page[len(page)-1].Seq
			for i := range page {
				if events[i] == nil {
					h.b.Fatal("no event")
				}
				if pending++; pending > cap(done) {
					noErr(h.b, <-done)
					pending--
				}
				h.Commit([]delivery.Fact{h.delivered(page[i])}, func(err error) { done <- err })
			}
		}
	}
	for range pending {
		noErr(h.b, <-done)
	}
	return read, rows
}

func (h *history) metrics() (m *pebble.Metrics) {
	noErr(h.b, h.view(func(db *pebble.DB) error {
		m = db.Metrics()
		return nil
	}))
	return m
}

func threadTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHistory publishes and drains backlogs in a store that keeps what it has
// delivered. One operation is one backlog, so -benchtime 10x makes a million
// deliveries of a store.
//
// It tells what a delivery writes to log and tables, and what processor time and
// how many blocks of tables its reads cost in the first and in the last backlog.
// What compactions cost of the processor is in its -cpuprofile: runCompaction,
// without what is below flush1.
func BenchmarkHistory(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) { benchHistory(b, size) })
	}
}

func benchHistory(b *testing.B, size int) {
	const backlog = 100_000 / historyPublish * historyPublish
	defaults := func(c *Config) { c.MemTable, c.Cache, c.DedupeMemory = 0, 0, 0 }
	h := &history{bench: openBench(b, vfs.Default, onDisk(b), defaults), b: b, rng: rand.NewChaCha8([32]byte{1}), size: size}
	cpu := cpuTime(b)
	b.ResetTimer()
	for i := range b.N {
		h.fill(backlog)
		before := h.blocks()
		read, rows := h.drain()
		if rows != backlog {
			b.Fatalf("%d rows, want %d", rows, backlog)
		}
		which := "last"
		if i == 0 {
			which = "first"
		}
		b.ReportMetric(float64(read.Nanoseconds())/backlog, which+"-read-ns/delivery")
		b.ReportMetric(float64(h.blocks()-before)/backlog, which+"-blocks/delivery")
	}
	b.StopTimer()
	all := float64(backlog) * float64(b.N)
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/all/1000, "cpu-µs/delivery")
	m := h.metrics()
	total := m.Total()
	b.ReportMetric(float64(m.WAL.BytesWritten)/all, "log-B/delivery")
	b.ReportMetric(float64(m.Levels[0].TableBytesFlushed)/all, "flushed-B/delivery")
	b.ReportMetric(float64(total.TableBytesCompacted)/all, "compacted-B/delivery")
	b.ReportMetric(total.WriteAmp(), "amplification")
	b.ReportMetric(float64(total.TablesCount), "tables")
	b.ReportMetric(float64(m.Levels[0].Sublevels), "sublevels")
}

// blocks is how many blocks of tables were asked for, by whatever runs beside the
// reads as well.
func (h *history) blocks() int64 {
	c := h.metrics().BlockCache
	return c.Hits + c.Misses
}
