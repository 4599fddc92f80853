package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// TestKillNineLosesNothing kills the real process in the middle of a drain and
// counts at the receiver. Lost must be 0; duplicates are at most what was in
// flight or not yet synced.
func TestKillNineLosesNothing(t *testing.T) {
	const queued = 5000
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	dir := t.TempDir()
	node := serve(t, dir, "--allow-private", "127.0.0.0/8", "--allow-http")
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h"), "concurrency": 16}, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/pause", nil, nil)
	ids := node.publish("t", "kill", queued)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/resume", nil, nil)

	eventually(t, 30*time.Second, "a part is delivered", func() bool { return receiver.Tally().Counts().Accepted >= queued/5 })
	node.kill()
	before := receiver.Tally().Counts().Accepted
	if before >= queued {
		t.Fatalf("everything was delivered before the kill: nothing was tested")
	}
	restarted := time.Now()
	node = serve(t, dir, "--allow-private", "127.0.0.0/8", "--allow-http")
	eventually(t, 30*time.Second, "deliveries go on", func() bool { return receiver.Tally().Counts().Accepted > before })
	back := time.Since(restarted)
	eventually(t, 60*time.Second, "everything is delivered", func() bool { return receiver.Tally().Counts().Accepted >= queued })

	lost := 0
	for _, id := range ids {
		if !receiver.Tally().Has(id) {
			lost++
		}
	}
	counts := receiver.Tally().Counts()
	t.Logf("queued %d, delivered before the kill %d, lost %d, duplicates %d, back at work after %v",
		queued, before, lost, counts.Duplicates, back.Round(time.Millisecond))
	if lost != 0 {
		t.Errorf("%d events were lost", lost)
	}
	// In flight (16), the window that was leased, and 10 ms of unsynced outcomes.
	if most := int64(queued / 5); counts.Duplicates > most {
		t.Errorf("%d duplicates, want at most %d", counts.Duplicates, most)
	}
	if t.Failed() {
		t.Log(node.logged())
	}
}

// TestAcceptedThenKilledIsDeliveredWithoutNewTraffic is the crash between the
// 202 and the first attempt.
func TestAcceptedThenKilledIsDeliveredWithoutNewTraffic(t *testing.T) {
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	dir := t.TempDir()
	node := serve(t, dir, "--allow-private", "127.0.0.0/8", "--allow-http")
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h")}, nil)
	receiver.Behave(testnet.Behaviour{Drop: true}) // the first attempt must not succeed before the kill
	node.publish("t", "q1", 1)
	node.kill()
	receiver.Behave(testnet.Behaviour{})
	serve(t, dir, "--allow-private", "127.0.0.0/8", "--allow-http")
	eventually(t, 30*time.Second, "the event arrives", func() bool { return receiver.Tally().Has("q1-000000") })
}
