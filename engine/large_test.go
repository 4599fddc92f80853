package engine

import (
	"bytes"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

var largeMiB = flag.Int("large-mib", 2, "MiB of the payload that goes to fifty subscribers at once")

// TestFiftyLargePayloadsAreUnderWayAtOnceWithoutBeingInMemory holds fifty
// deliveries of a payload back until all of them have begun.
func TestFiftyLargePayloadsAreUnderWayAtOnceWithoutBeingInMemory(t *testing.T) {
	const subscribers = 50
	size := *largeMiB << 20
	b := setup(t, withIngress)
	var begun atomic.Int64
	all := make(chan struct{})
	arrived := make(chan int64, subscribers)
	receive := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if begun.Add(1) == subscribers {
			close(all)
		}
		<-all
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived <- n
	})
	timeout := time.Minute
	for i := range subscribers {
		s := httptest.NewServer(receive)
		t.Cleanup(s.Close)
		id := fmt.Sprint("s", i)
		if _, err := b.CreateSubscriber(t.Context(), "t", SubscriberInput{ID: &id, URL: &s.URL, Timeout: &timeout}); err != nil {
			t.Fatal(err)
		}
	}
	b.source("gh", `"destination":{"type":"fanout"},"max_body":26214400`)
	body := make([]byte, size)
	_, _ = rand.Read(body)
	header := githubHeaders(t, "big", "push", body, githubSecret)
	peak := peakHeap()
	if a := b.post("gh", header, bytes.NewReader(body)); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	for range subscribers {
		if n := <-arrived; n != int64(size) {
			t.Errorf("%d bytes arrived, want %d", n, size)
		}
	}
	grown := peak()
	t.Logf("%d payloads of %d MiB: the heap grew by %.1f MiB", subscribers, *largeMiB, float64(grown)/(1<<20))
	// Connections and their buffers, on both sides; the payloads are more than
	// three times that together.
	if grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}
