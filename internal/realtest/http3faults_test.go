//go:build real

package realtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// ran is how many requests ngtcp2's server has been handed so far.
func ran(t *testing.T, peer string) int64 {
	t.Helper()
	info, err := os.Stat(environment(t, "DISPATCHER_REAL_HTTP3_"+peer+"_RAN"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Streams reset by ngtcp2 after it has read the request: the code decides, the
// connection stays, and nothing is sent again by itself.
func TestRealHTTP3ResetIsJudgedByItsCode(t *testing.T) {
	for peer, want := range map[string]delivery.SendError{
		"REJECTED": {Sent: delivery.SentRefused},
		"FALLBACK": {Sent: delivery.SentRefused, Broken: delivery.BrokenExplicit},
		"INTERNAL": {Sent: delivery.SentAmbiguous},
	} {
		t.Run(peer, func(t *testing.T) {
			tr, ep := newTransport(t), endpoint(t, "DISPATCHER_REAL_HTTP3_"+peer)
			for i := range 3 {
				before := ran(t, peer)
				resp, reused, err := overQUIC(t.Context(), tr, ep, post(ep, "/index.html", "reset", []byte("{}")))
				got, ok := errors.AsType[*delivery.SendError](err)
				if !ok || got.Sent != want.Sent || got.Broken != want.Broken {
					t.Fatalf("%+v, %+v", resp, err)
				}
				if n := ran(t, peer) - before; n != 1 {
					t.Errorf("the peer was handed the request %d times", n)
				}
				if keeps := want.Broken == delivery.BrokenNot; reused != (keeps && i > 0) {
					t.Errorf("request %d: reused = %t", i, reused)
				}
			}
		})
	}
}

// nghttp3 says goodbye with the fifth answer of each connection, while seven more
// requests are on their way. One is sent again only with proof, so each is handed
// to the peer once.
func TestRealHTTP3GoAwayLosesAndDoublesNothing(t *testing.T) {
	tr, ep := newTransport(t), endpoint(t, "DISPATCHER_REAL_HTTP3_GOAWAY")
	before := ran(t, "GOAWAY")
	var refused, fresh atomic.Int64
	all := payloads.GitHub()
	each(all, func(p payloads.Payload) {
		resends, dialled, err := untilAnswered(t.Context(), tr, ep, p)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		refused.Add(resends)
		fresh.Add(dialled)
	})
	if n := ran(t, "GOAWAY") - before; n != int64(len(all)) {
		t.Errorf("the peer was handed %d requests, want %d", n, len(all))
	}
	t.Logf("%d requests, %d refused by GOAWAY, %d new connections", len(all), refused.Load(), fresh.Load())
	// Each connection takes the five and those that were on their way.
	if least := int64(len(all)) / 16; fresh.Load() < least {
		t.Errorf("%d new connections for %d requests, want at least %d: GOAWAY was not heeded", fresh.Load(), len(all), least)
	}
}

// untilAnswered sends a body over HTTP/3 until it is answered 200, again only
// with proof that it was not processed.
func untilAnswered(ctx context.Context, tr *transport.Transport, ep delivery.Endpoint, p payloads.Payload) (resends, dialled int64, err error) {
	for range 20 {
		var resp *delivery.Response
		var reused bool
		resp, reused, err = overQUIC(ctx, tr, ep, post(ep, "/index.html", p.Name, p.Body))
		if !reused {
			dialled++
		}
		if err == nil {
			if resp.Status != http.StatusOK {
				err = fmt.Errorf("status %d", resp.Status)
			}
			return resends, dialled, err
		}
		send, ok := errors.AsType[*delivery.SendError](err)
		if !ok || (send.Sent != delivery.SentNever && send.Sent != delivery.SentRefused) {
			return resends, dialled, err
		}
		resends++
	}
	return resends, dialled, err
}
