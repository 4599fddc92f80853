package main

import (
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// TestSIGTERMUnderLoadFlipsReadinessFirstAndLosesNothing stops a node that is
// delivering: /readyz says 503 while everything else still works, what is in
// flight ends or is recorded as interrupted without costing an attempt, and the
// process exits with 0.
func TestSIGTERMUnderLoadFlipsReadinessFirstAndLosesNothing(t *testing.T) {
	brisk, silent := receiverThat(t, testnet.Behaviour{Delay: 20 * time.Millisecond}), receiverThat(t, testnet.Behaviour{Delay: time.Minute})
	dir := t.TempDir()
	flags := []string{"--allow-private", "127.0.0.0/8", "--allow-http"}
	node := serve(t, dir, append(flags, "--shutdown-delay", "2s", "--shutdown-timeout", "3s")...)
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	for id, receiver := range map[string]*testnet.Receiver{"brisk": brisk, "silent": silent} {
		node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": id, "url": receiver.URL("", "/h"), "timeout": "50s"}, nil)
	}
	ids := node.publish("t", "load", 500)
	eventually(t, 20*time.Second, "both are in the middle of it", func() bool {
		return brisk.Tally().Counts().Requests > 20 && silent.Tally().Counts().Requests > 0
	})

	if err := node.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// try fails the test when the connection is refused: readiness comes first.
	eventually(t, 20*time.Second, "/readyz says so", func() bool {
		status, _ := node.try(http.MethodGet, "/readyz", nil)
		return status == http.StatusServiceUnavailable
	})
	if status, _ := node.try(http.MethodGet, "/healthz", nil); status != http.StatusOK {
		t.Errorf("/healthz answers %d to a node that stops: it would be killed", status)
	}
	ids = append(ids, node.publish("t", "late", 1)...) // a balancer that has not looked yet

	exited := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { <-node.eof; exited <- node.cmd.Wait() })
	defer waiting.Wait()
	select {
	case err := <-exited:
		if err != nil {
			t.Fatalf("the node did not end well: %v\n%s", err, node.logged())
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the node does not stop\n%s", node.logged())
	}
	silent.Behave(testnet.Behaviour{})
	node = serve(t, dir, flags...)
	interrupted(t, node, ids[:16])
	for name, receiver := range map[string]*testnet.Receiver{"brisk": brisk, "silent": silent} {
		eventually(t, 60*time.Second, "everything arrives at "+name, func() bool {
			return receiver.Tally().Counts().Accepted >= int64(len(ids)) && receiver.Tally().Has("late-000000")
		})
		for _, id := range ids {
			if !receiver.Tally().Has(id) {
				t.Errorf("%s never arrived at %s", id, name)
			}
		}
	}
}

func receiverThat(t *testing.T, b testnet.Behaviour) *testnet.Receiver {
	t.Helper()
	r, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.Behave(b)
	return r
}

// interrupted checks that an attempt which the stop cut off stands on its
// delivery's timeline, and that the delivery did not pay for it. The first events
// are those that the silent receiver held.
func interrupted(t *testing.T, node *process, ids []string) {
	t.Helper()
	for _, id := range ids {
		var page struct {
			Data []struct {
				ID         string `json:"id"`
				Subscriber string `json:"subscriber"`
			} `json:"data"`
		}
		node.call(http.MethodGet, "/v1/tenants/t/events/"+id+"/deliveries", nil, &page)
		for _, d := range page.Data {
			if d.Subscriber != "silent" {
				continue
			}
			var got struct {
				State    string `json:"state"`
				Timeline []struct {
					Reason string `json:"reason"`
				} `json:"timeline"`
			}
			node.call(http.MethodGet, "/v1/deliveries/"+d.ID, nil, &got)
			for _, entry := range got.Timeline {
				if entry.Reason != "interrupted" {
					continue
				}
				if got.State == "dead" {
					t.Errorf("%s is dead after an interruption", d.ID)
				}
				return
			}
		}
	}
	t.Errorf("none of %d deliveries was recorded as interrupted", len(ids))
}
