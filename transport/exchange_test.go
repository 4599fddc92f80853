package transport

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestSealAndWriteNeverBothWin: a request that was declared "never sent" is not
// written by a goroutine that was a little late, and one that was written is
// never declared so.
func TestSealAndWriteNeverBothWin(t *testing.T) {
	var wins [2]atomic.Int64
	for range 2000 {
		ex := &exchange{req: &delivery.Request{Valid: func() bool { return true }}}
		var wrote, never bool
		var wg sync.WaitGroup
		wg.Go(func() { wrote = ex.beginWrite() })
		wg.Go(func() { never = ex.seal() })
		wg.Wait()
		if wrote == never {
			t.Fatalf("written: %v, declared never sent: %v", wrote, never)
		}
		if ex.beginWrite() != wrote || ex.seal() != never {
			t.Fatal("the answer changed afterwards")
		}
		if wrote {
			wins[0].Add(1)
		} else {
			wins[1].Add(1)
		}
	}
	t.Logf("written %d times, sealed %d times", wins[0].Load(), wins[1].Load())
}

func TestLeaseIsLookedAtBeforeTheFirstByteOnly(t *testing.T) {
	asked := 0
	ex := &exchange{req: &delivery.Request{Valid: func() bool { asked++; return true }}}
	for range 3 {
		if !ex.beginWrite() {
			t.Fatal("refused")
		}
	}
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
}
