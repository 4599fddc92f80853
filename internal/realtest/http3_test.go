//go:build real

package realtest

import (
	"net/http"
	"testing"

	"github.com/dispatcher-engine/dispatcher/internal/payloads"
)

func TestRealHTTP3ServerAnswersPOSTs(t *testing.T) {
	for _, variable := range []string{"DISPATCHER_REAL_HTTP3", "DISPATCHER_REAL_HTTP3_RETRY"} {
		t.Run(variable, func(t *testing.T) {
			tr, ep := newTransport(t), endpoint(t, variable)
			each(payloads.GitHub(), func(p payloads.Payload) {
				resp, _, err := overQUIC(t.Context(), tr, ep, post(ep, "/index.html", p.Name, p.Body))
				if err != nil || resp.Status != http.StatusOK || string(resp.Body) != "received\n" {
					t.Errorf("%s: %+v, %v", p.Name, resp, err)
				}
			})
			if s := tr.Stats(); s.Sockets > 2 {
				t.Errorf("%d UDP sockets for one peer", s.Sockets)
			}
		})
	}
}

// The server answers before it has read the body, and asks us to stop sending:
// a success is decided at the headers.
func TestRealHTTP3EarlyAnswerIsASuccess(t *testing.T) {
	tr, ep := newTransport(t), endpoint(t, "DISPATCHER_REAL_HTTP3_EARLY")
	for range 5 {
		resp, _, err := overQUIC(t.Context(), tr, ep, post(ep, "/index.html", "early", make([]byte, 8<<20)))
		if err != nil || resp.Status != http.StatusOK {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
}

func TestRealHTTP3ConnectionIsReused(t *testing.T) {
	tr, ep := newTransport(t), endpoint(t, "DISPATCHER_REAL_HTTP3")
	for i := range 10 {
		resp, reused, err := overQUIC(t.Context(), tr, ep, post(ep, "/index.html", "reused", []byte("{}")))
		if err != nil || resp.Status != http.StatusOK {
			t.Fatalf("%+v, %v", resp, err)
		}
		if reused != (i > 0) {
			t.Errorf("request %d: reused = %t", i, reused)
		}
	}
}
