//go:build real

package realtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/transport"
)

var nginxPorts = map[string]delivery.Protocol{
	"DISPATCHER_REAL_NGINX_H2": delivery.ProtocolHTTP2,
	"DISPATCHER_REAL_NGINX_H1": delivery.ProtocolHTTP1,
}

// upstream listens where nginx sends requests on to, and keeps what arrives.
type upstream struct {
	mu     sync.Mutex
	bodies map[string][][]byte // by webhook-id, in order of arrival
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{bodies: map[string][][]byte{}}
	l, err := net.Listen("unix", environment(t, "DISPATCHER_REAL_NGINX_UPSTREAM"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // always the error of Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	u.bodies[r.Header.Get("Webhook-Id")] = append(u.bodies[r.Header.Get("Webhook-Id")], body)
	u.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// nginx ends each connection after 20 requests, while more are on their way:
// the moment at which transports lose a POST or send it twice. Here it is sent
// again exactly when the transport calls it unsent or refused, so a wrong word
// of proof shows as a body that arrived twice, or never.
func TestRealNginxGetsEachPOSTOnceWhileItEndsConnections(t *testing.T) {
	for variable, protocol := range nginxPorts {
		t.Run(protocol.String(), func(t *testing.T) {
			got := newUpstream(t)
			tr, ep := newTransport(t), endpoint(t, variable)
			var reused atomic.Int64
			all := payloads.GitHub()
			each(all, func(p payloads.Payload) {
				warm, err := untilTaken(t.Context(), tr, ep, protocol, p)
				if err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
				if warm {
					reused.Add(1)
				}
			})
			for _, p := range all {
				if n := len(got.bodies[p.Name]); n != 1 || !bytes.Equal(got.bodies[p.Name][0], p.Body) {
					t.Errorf("%s arrived %d times, or changed", p.Name, n)
				}
			}
			if least := int64(len(all)) / 2; reused.Load() < least {
				t.Errorf("%d of %d requests reused a connection, want at least %d", reused.Load(), len(all), least)
			}
		})
	}
}

// untilTaken sends a body until it is answered 204, again only with proof that
// it was not processed.
func untilTaken(ctx context.Context, tr *transport.Transport, ep delivery.Endpoint, protocol delivery.Protocol, p payloads.Payload) (warm bool, err error) {
	for range 20 {
		var resp *delivery.Response
		resp, warm, err = overTCP(ctx, tr, ep, protocol, post(ep, "/in", p.Name, p.Body))
		if err == nil {
			if resp.Status != http.StatusNoContent {
				return warm, fmt.Errorf("status %d", resp.Status)
			}
			return warm, nil
		}
		send, ok := errors.AsType[*delivery.SendError](err)
		if !ok || (send.Sent != delivery.SentNever && send.Sent != delivery.SentRefused) {
			return warm, err
		}
	}
	return warm, err
}

func TestRealNginxGetsLargeBodiesWhole(t *testing.T) {
	for variable, protocol := range nginxPorts {
		t.Run(protocol.String(), func(t *testing.T) {
			got := newUpstream(t)
			tr, ep := newTransport(t), endpoint(t, variable)
			body := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
			resp, _, err := overTCP(t.Context(), tr, ep, protocol, post(ep, "/in", "large", body))
			if err != nil || resp.Status != http.StatusNoContent {
				t.Fatalf("%+v, %v", resp, err)
			}
			if n := len(got.bodies["large"]); n != 1 || !bytes.Equal(got.bodies["large"][0], body) {
				t.Errorf("arrived %d times, or changed", n)
			}
		})
	}
}

// nginx answers 413 from the headers alone and closes: the answer must be seen,
// not the broken pipe.
func TestRealNginxRefusingABodyIsAnAnswer(t *testing.T) {
	for variable, protocol := range nginxPorts {
		t.Run(protocol.String(), func(t *testing.T) {
			tr, ep := newTransport(t), endpoint(t, variable)
			body := make([]byte, 40<<20)
			resp, _, err := overTCP(t.Context(), tr, ep, protocol, post(ep, "/in", "too large", body))
			if err != nil || resp.Status != http.StatusRequestEntityTooLarge {
				t.Fatalf("%+v, %v", resp, err)
			}
		})
	}
}
