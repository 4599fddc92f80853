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

// BenchmarkDrain reads a backlog as its subscribers do, who advance side by side in
// pages of 20 with their events, take leases and hand in outcomes: what the store
// costs a delivery.
func BenchmarkDrain(b *testing.B) {
	const subscribers, events, page = 100, 100_000, 20
	payload := bytes.Repeat([]byte(`{"id":12345,"name":"x"},`), 43)
	b.ReportAllocs()
	var cpu time.Duration
	done := make(chan struct{}, 1)
	for n := 0; n < b.N; {
		b.StopTimer()
		s := openBench(b, vfs.Default, onDisk(b), func(c *Config) { c.lookAfter = lookAfter })
		var list []*delivery.Published
		for i := range events {
			x := eventAt(s.start.Add(time.Duration(i)*time.Microsecond), uint64(i), fmt.Sprint(i), delivery.SubscriberNum(i%subscribers+1))
			x.Event.Payload, x.Event.Size = payload, int64(len(payload))
			if list = append(list, x); len(list) == 1000 {
				for _, r := range s.Publish(context.Background(), list) {
					noErr(b, r.Err)
				}
				list = list[:0]
			}
		}
		cursors := make([]delivery.Seq, subscribers+1)
		begin := cpuTime(b)
		b.StartTimer()
		for at := 0; at < events/subscribers && n < b.N; at += page {
			for sub := delivery.SubscriberNum(1); sub <= subscribers; sub++ {
				rows, err := s.Ready(sub, delivery.PriorityNormal, cursors[sub], page)
				noErr(b, err)
				cursors[sub] = rows[len(rows)-1].Seq
				keys := make([]delivery.EventKey, len(rows))
				facts := []delivery.Fact{&delivery.Leased{Lease: s.Lease(), Subscriber: sub, Place: delivery.PlaceReady, Lane: delivery.PriorityNormal, UpTo: cursors[sub]}}
				for i := range rows {
					keys[i] = rows[i].Event
					facts = append(facts, s.delivered(rows[i]))
				}
				_, err = s.EventPage(keys, 1<<30)
				noErr(b, err)
				s.Commit(facts, func(err error) {
					if err != nil {
						b.Error(err)
					}
					if sub == subscribers {
						done <- struct{}{}
					}
				})
				n += len(rows)
			}
			<-done
		}
		b.StopTimer()
		cpu += cpuTime(b) - begin
		s.close()
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
}
