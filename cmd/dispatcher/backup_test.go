package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// TestANodeStartsOnABackupOfARunningOne backs up a node that goes on delivering,
// and starts another one on the copy.
func TestANodeStartsOnABackupOfARunningOne(t *testing.T) {
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	flags := []string{"--allow-private", "127.0.0.0/8", "--allow-http"}
	node := serve(t, t.TempDir(), flags...)
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h")}, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/pause", nil, nil)
	ids := node.publish("t", "backup", 200)
	copied := filepath.Join(t.TempDir(), "copy")
	node.call(http.MethodPost, "/v1/store/backup", map[string]any{"directory": copied}, nil)
	node.publish("t", "after", 10) // not in the copy
	node.kill()

	restored := serve(t, copied, flags...)
	restored.call(http.MethodPost, "/v1/tenants/t/subscribers/s/resume", nil, nil)
	eventually(t, 30*time.Second, "everything in the copy arrives", func() bool { return receiver.Tally().Counts().Accepted >= int64(len(ids)) })
	for _, id := range ids {
		if !receiver.Tally().Has(id) {
			t.Errorf("%s is lost", id)
		}
	}
	if receiver.Tally().Has("after-000000") {
		t.Error("the copy holds what was published after it was made")
	}
	var stats struct {
		Open int64 `json:"open_deliveries"`
	}
	eventually(t, 10*time.Second, "nothing is open", func() bool {
		restored.call(http.MethodGet, "/v1/store", nil, &stats)
		return stats.Open == 0
	})
}
