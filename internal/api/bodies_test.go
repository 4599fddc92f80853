package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// gated is a body of JSON that is held back until the gate opens; it tells that
// somebody reads it.
type gated struct {
	reading *atomic.Int64
	gate    chan struct{}
	begun   bool
	rest    io.Reader
}

func (g *gated) Read(p []byte) (int, error) {
	if !g.begun {
		g.begun = true
		g.reading.Add(1)
		<-g.gate
	}
	return g.rest.Read(p)
}

// Fifty events of 25 MiB at once are read as there is room for them, whether one
// by one or as lines of batches; small ones pass by, and all arrive.
func TestLargeEventsAtOnceShareABudgetOfMemory(t *testing.T) {
	const many, size = 50, 25 << 20
	event := []byte(`{"topic":"t","payload":"` + strings.Repeat("x", size-100) + `"}`)
	for path, most := range map[string]int64{"events": bodyBudget / (2 * size), "events/batch": many} {
		synctest.Test(t, func(t *testing.T) {
			node := &countingNode{}
			s, err := New(node, Config{Tokens: []string{goodToken}})
			if err != nil {
				t.Fatal(err)
			}
			send := func(body io.Reader, length int64) int {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tenants/t1/"+path, body)
				r.ContentLength = length
				r.Header.Set("Authorization", "Bearer "+goodToken)
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				return w.Code
			}
			var reading atomic.Int64
			gate := make(chan struct{})
			var wg sync.WaitGroup
			for range many {
				wg.Go(func() {
					body := &gated{reading: &reading, gate: gate, rest: bytes.NewReader(event)}
					if status := send(body, int64(len(event))); status >= 300 {
						t.Errorf("%s: %d", path, status)
					}
				})
			}
			synctest.Wait()
			if n := reading.Load(); n != most {
				t.Errorf("%s: %d bodies are read at once, want %d", path, n, most)
			}
			small := []byte(`{"topic":"t","payload":1}`)
			if status := send(bytes.NewReader(small), int64(len(small))); status >= 300 {
				t.Errorf("%s: a small one beside them: %d", path, status)
			}
			close(gate)
			wg.Wait()
			if n := node.published.Load(); n != many+1 {
				t.Errorf("%s: %d were published", path, n)
			}
			if most := node.most.Load(); most > bodyBudget/(2*size) {
				t.Errorf("%s: %d large events were in memory at once", path, most)
			}
		})
	}
}
