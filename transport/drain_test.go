package transport

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/http2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestSlotThatComesTooLateLeavesTheOthersTheirAnswers: a GOAWAY arrives between
// the reservation of a slot and its use. The late request was never sent; the
// early one, which the GOAWAY includes, gets its answer.
func TestSlotThatComesTooLateLeavesTheOthersTheirAnswers(t *testing.T) {
	b := setup(t)
	answer := make(chan struct{})
	var scripts tasks
	peer := serveRawHTTP2(t, func(p *http2Peer, stream uint32) {
		_ = p.WriteGoAway(stream, http2.ErrCodeNo, nil)
		scripts.run(func() {
			<-answer
			p.answer(stream, true, ":status", "204")
		})
	})
	ep, ctx := endpoint(peer.port), within(t, 5*time.Second)
	early := b.tcp(ctx, ep)
	late, ok := b.tr.Warm(ep, Want{})
	if !ok {
		t.Fatal("no second slot on the connection")
	}
	type ended struct {
		resp *delivery.Response
		err  error
	}
	first := make(chan ended, 1)
	go func() {
		resp, err := early.RoundTrip(ctx, post(ep, "early"))
		first <- ended{resp, err}
	}()
	eventually(t, "the GOAWAY has arrived", func() bool {
		c, warm := b.tr.Warm(ep, Want{})
		if warm {
			c.Release()
		}
		return !warm
	})
	_, err := late.RoundTrip(ctx, post(ep, "late"))
	wantSent(t, err, delivery.SentNever, delivery.CauseReset)
	if s := b.tr.Stats(); s.HTTP2.Live != 1 || s.InFlight != 1 {
		t.Errorf("the early request lost its connection: %+v", s)
	}
	close(answer)
	if got := <-first; got.err != nil || got.resp.Status != 204 {
		t.Errorf("the early request: %+v, %v", got.resp, got.err)
	}
	eventually(t, "the connection is closed when nothing is in flight", func() bool {
		s := b.tr.Stats()
		return s.HTTP2.Live == 0 && s.InFlight == 0
	})
	if n := peer.whole.Load(); n != 1 || peer.conns.Load() != 1 {
		t.Errorf("the peer got %d requests on %d connections", n, peer.conns.Load())
	}
	<-scripts.none()
}

// TestOurMistakeCostsNobodyAConnection: a body that cannot be read, and headers
// that no stack encodes, end one request and not the connection under others.
func TestOurMistakeCostsNobodyAConnection(t *testing.T) {
	for name, spoil := range map[string]func(*delivery.Request){
		"body": func(r *delivery.Request) {
			r.Body, r.Length = nil, 64<<10
			r.Open = func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errors.New("disk"))), nil }
		},
		"header": func(r *delivery.Request) { setHeader(r, "X-Bad", "a\nb") },
	} {
		for _, proto := range []delivery.Protocol{delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
			t.Run(name+" over "+proto.String(), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				open := opener(t, b, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				}))
				other, ep := open()
				bad, _ := open()
				r := post(ep, "{}")
				spoil(r)
				_, err := bad.RoundTrip(within(t, 5*time.Second), r)
				if se := sendError(t, err); se.Cause != delivery.CauseLocal {
					t.Errorf("%v", se)
				}
				if resp, err := other.RoundTrip(within(t, 5*time.Second), post(ep, "{}")); err != nil || resp.Status != 200 {
					t.Errorf("the other request: %+v, %v", resp, err)
				}
				next, _ := open()
				if !next.Reused() {
					t.Error("the connection was not kept")
				}
				next.Release()
			})
		}
	}
}
