package storage

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// BenchmarkReadEvents reads the events of a backlog as its subscribers do, who
// advance side by side, one by one and a page at a time.
func BenchmarkReadEvents(b *testing.B) {
	const subscribers, backlog, page = 100, 100_000, 64
	s := openBench(b, vfs.Default, onDisk(b), func(c *Config) { c.MemTable, c.Cache = 16<<20, 32<<20 })
	queues := make([][]delivery.EventKey, subscribers)
	payload := bytes.Repeat([]byte(`{"id":12345,"name":"x"},`), 43)
	var list []*delivery.Published
	for i := range backlog {
		x := eventAt(s.start.Add(time.Duration(i)*time.Microsecond), uint64(i), fmt.Sprint(i), delivery.SubscriberNum(i%subscribers+1))
		x.Event.Payload, x.Event.Size = payload, int64(len(payload))
		if list = append(list, x); len(list) < 1000 {
			continue
		}
		for j, r := range s.Publish(context.Background(), list) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			queues[j%subscribers] = append(queues[j%subscribers], r.Event)
		}
		list = list[:0]
	}
	drain := func(b *testing.B, read func(keys []delivery.EventKey)) {
		b.ReportAllocs()
		cpu, n := cpuTime(b), 0
		for n < b.N {
			for at := 0; at+page <= backlog/subscribers && n < b.N; at += page {
				for _, keys := range queues {
					read(keys[at : at+page])
					n += page
				}
			}
		}
		b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(n)/1000, "cpu-µs/op")
	}
	b.Run("one by one", func(b *testing.B) {
		drain(b, func(keys []delivery.EventKey) {
			for _, key := range keys {
				if _, err := s.Event(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("page", func(b *testing.B) {
		drain(b, func(keys []delivery.EventKey) {
			if _, err := s.EventPage(keys, 1<<30); err != nil {
				b.Fatal(err)
			}
		})
	})
}
