package engine

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestEventKeysStrictlyIncreaseWhateverTheClockDoes(t *testing.T) {
	var m keyMaker
	now := time.UnixMilli(1_700_000_000_000)
	var last delivery.EventKey
	for i := range 20_000 {
		at := now
		switch i % 5000 {
		case 1:
			at = now.Add(-time.Hour) // the clock steps back
		case 4999:
			now = now.Add(time.Millisecond)
		}
		k := m.next(at)
		if bytes.Compare(k[:], last[:]) <= 0 {
			t.Fatalf("key %d does not increase: %v after %v", i, k, last)
		}
		if k[6]>>4 != 7 || k[8]>>6 != 2 {
			t.Fatalf("%v is no UUIDv7", k)
		}
		last = k
	}
	if drift := last.Time().Sub(now); drift < 0 || drift > 10*time.Millisecond {
		t.Errorf("keys drifted by %v from the clock", drift)
	}
}

func TestEventKeysAreUniqueAcrossGoroutines(t *testing.T) {
	var m keyMaker
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[delivery.EventKey]bool{}
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				k := m.next(time.Now())
				mu.Lock()
				if seen[k] {
					t.Errorf("%v twice", k)
				}
				seen[k] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
