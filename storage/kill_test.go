package storage

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// killed names the variable that makes this test binary publish until it is
// killed.
const killed = "DISPATCHER_TEST_PUBLISH_INTO"

// TestNothingAcknowledgedIsLostWhenTheProcessIsKilled runs this test binary as a
// node that publishes, delivers and tells what was acknowledged, kills it without
// warning in the middle of that, and looks for every event it told of.
func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	if dir := os.Getenv(killed); dir != "" {
		publishUntilKilled(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	acked := map[string]bool{}
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingAcknowledgedIsLostWhenTheProcessIsKilled$")
		cmd.Env = append(os.Environ(), killed+"="+dir)
		out, err := cmd.StdoutPipe()
		noErr(t, err)
		noErr(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			acked[lines.Text()] = true
			if n == 150 {
				noErr(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		s, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for id := range acked {
			key, err := s.EventByID(t.Context(), 7, "", id)
			if err != nil {
				t.Fatalf("round %d: %s was acknowledged: %v", round, id, err)
			}
			if d, err := s.Delivery(t.Context(), key, 1); err != nil || d.State != delivery.StateReceived && d.State != delivery.StateDelivered {
				t.Fatalf("round %d: %s: %+v, %v", round, id, d, err)
			}
		}
		noErr(t, s.Close())
	}
	t.Logf("%d events were acknowledged and are there", len(acked))
}

func publishUntilKilled(t *testing.T, dir string) {
	s, err := Open(Config{Dir: dir})
	noErr(t, err)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("evt_%d_%d_%d", os.Getpid(), w, i)
				x := eventAt(time.Now(), uint64(w)<<32|uint64(i), id, 1)
				if r := s.Publish(context.Background(), []*delivery.Published{x})[0]; r.Err != nil {
					t.Error(r.Err)
					return
				}
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
				if rows, err := s.Ready(1, delivery.PriorityNormal, 0, 1); w == 0 && err == nil && len(rows) > 0 {
					b := bench{Store: s}
					s.Commit([]delivery.Fact{b.delivered(rows[0])}, nil)
				}
			}
		})
	}
	wg.Wait()
}
