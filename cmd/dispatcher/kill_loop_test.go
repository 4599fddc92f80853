package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// publisher publishes single events over the API and remembers which of them
// were acknowledged.
type publisher struct {
	round int
	next  atomic.Int64

	mu    sync.Mutex
	acked []string
	other map[int]int // statuses that were not 202
}

// run publishes until ctx ends or the node is gone.
func (p *publisher) run(ctx context.Context, url, token string) {
	for ctx.Err() == nil {
		id := fmt.Sprintf("r%02d-%06d", p.round, p.next.Add(1))
		body := fmt.Sprintf(`{"id":%q,"topic":"load.x","payload":{"id":%q}}`, id, id)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/tenants/t/events", bytes.NewReader([]byte(body)))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // killed under the request: it was not acknowledged
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		p.mu.Lock()
		if resp.StatusCode == http.StatusAccepted && err == nil {
			p.acked = append(p.acked, id)
		} else {
			p.other[resp.StatusCode]++
		}
		p.mu.Unlock()
	}
}

// TestTwentyKillsUnderLoadLoseNothing kills the real process at random moments
// while it accepts and delivers, twenty times. Whatever was acknowledged must
// arrive.
func TestTwentyKillsUnderLoadLoseNothing(t *testing.T) {
	const rounds, publishers = 20, 8
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	dir, seed := t.TempDir(), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	flags := []string{"--allow-private", "127.0.0.0/8", "--allow-http"}
	node := serve(t, dir, flags...)
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	for _, id := range []string{"a", "b", "c"} {
		node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": id, "url": receiver.URL("", "/"+id)}, nil)
	}
	var acked []string
	refused := map[int]int{}
	for round := range rounds {
		p := &publisher{round: round, other: refused}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range publishers {
			wg.Go(func() { p.run(ctx, node.url, node.token) })
		}
		<-time.After(time.Duration(50+random.IntN(250)) * time.Millisecond)
		node.kill() // with requests under way
		stop()
		wg.Wait()
		acked = append(acked, p.acked...)
		node = serve(t, dir, flags...)
	}
	lost := func() (n int) {
		for _, id := range acked {
			if !receiver.Tally().Has(id) {
				n++
			}
		}
		return n
	}
	eventually(t, 60*time.Second, "everything acknowledged arrives", func() bool { return lost() == 0 })
	// Each event goes to three subscribers of one receiver, which sees one id.
	eventually(t, 60*time.Second, "each of the three subscribers has it", func() bool {
		c := receiver.Tally().Counts()
		return c.Accepted+c.Duplicates >= 3*int64(len(acked))
	})
	c := receiver.Tally().Counts()
	t.Logf("seed %d: %d rounds, %d acknowledged, %d lost, %d requests for %d deliveries, other answers %v",
		seed, rounds, len(acked), lost(), c.Requests, 3*len(acked), refused)
	if len(acked) < rounds {
		t.Errorf("only %d events were acknowledged: nothing was tested", len(acked))
	}
}
