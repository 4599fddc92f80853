package storage

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// BenchmarkRegister registers subscribers in batches of a thousand, as a
// platform that moves in does, and reports what a registered one costs in
// memory: nothing that grows.
func BenchmarkRegister(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()})
	noErr(b, err)
	defer s.Close()
	r := s.Registry()
	_, err = r.PutTenant(delivery.Tenant{ID: "acme"}, MustNotExist)
	noErr(b, err)
	before := heapInUse()
	b.ResetTimer()
	for n := 0; n < b.N; {
		var part []*delivery.Subscriber
		for ; n < b.N && len(part) < 1000; n++ {
			part = append(part, testSubscriber(1, fmt.Sprintf("s-%09d", n), fmt.Sprintf("topic-%d.*", n%1000)))
		}
		_, err := r.CreateSubscribers(part)
		noErr(b, err)
	}
	b.StopTimer()
	b.ReportMetric(float64(heapInUse()-before)/float64(b.N), "heap-B/subscriber")
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // below 2^63
}
