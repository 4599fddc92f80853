package transport

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// oneWay is how long a packet travels in the virtual network.
const oneWay = 50 * time.Millisecond

// virtual is a peer over a simulated network in virtual time.
type virtual struct {
	*bundle
	ep     delivery.Endpoint
	alt    delivery.Alternative
	cut    atomic.Bool // packets vanish
	short  atomic.Bool // those with a short header vanish: what follows a handshake
	closed chan error  // what the peer was told at the end of each connection
}

// cutRouter loses everything while told to.
type cutRouter struct {
	simnet.PerfectRouter
	cut, short *atomic.Bool
}

func (r *cutRouter) SendPacket(p simnet.Packet) error {
	if r.cut.Load() || r.short.Load() && p.Data[0]&0x80 == 0 {
		return nil
	}
	return r.PerfectRouter.SendPacket(p)
}

// inVirtualTime runs f in a bubble with a peer that serves h.
func inVirtualTime(t *testing.T, h http.HandlerFunc, f func(t *testing.T, v *virtual)) {
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{closed: make(chan error, 16)}
		sim := &simnet.Simnet{Router: &cutRouter{cut: &v.cut, short: &v.short}}
		link := simnet.NodeBiDiLinkSettings{Latency: oneWay}
		client := sim.NewEndpoint(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1).To4(), Port: 5000}, link)
		server := sim.NewEndpoint(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: 443}, link)
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		srv := &http3.Server{Handler: h, ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			context.AfterFunc(c.Context(), func() { v.closed <- context.Cause(c.Context()) })
			return ctx
		}}
		tr := &quic.Transport{Conn: server}
		ln, err := tr.ListenEarly(&tls.Config{
			Certificates: []tls.Certificate{testCA().issue(originName)}, NextProtos: []string{protoHTTP3},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.ServeListener(ln) }()

		v.bundle = setup(t, func(c *Config) {
			c.QUICHandshakeTimeout = 3 * time.Second
			c.ListenUDP = func(string, *net.UDPAddr) (net.PacketConn, error) { return client, nil }
		})
		v.ep, v.alt = endpoint(443), delivery.Alternative{Port: 443}
		f(t, v)

		v.cut.Store(false)
		v.short.Store(false)
		if err := v.tr.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = srv.Close()
		_ = ln.Close()
		_ = tr.Close()
		_ = server.Close()
		_ = sim.Close()
	})
}

func TestPostTakesTheRoundTripsOfItsProtocol(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		for i, want := range []time.Duration{4 * oneWay, 2 * oneWay} { // cold, warm
			started := time.Now()
			resp, err := v.quic(t.Context(), v.ep).RoundTrip(t.Context(), post(v.ep, "body"))
			if err != nil || resp.Status != 200 {
				t.Fatalf("%+v, %v", resp, err)
			}
			if took := time.Since(started); took != want {
				t.Fatalf("POST %d took %v, want %v", i, took, want)
			}
			if resp.FirstByte != 2*oneWay {
				t.Fatalf("the first byte took %v", resp.FirstByte)
			}
		}
	})
}

func TestSilenceIsATimeoutOfExactlyTheHandshakeTimeout(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		v.cut.Store(true)
		started := time.Now()
		_, err := v.tr.DialQUIC(t.Context(), v.ep, v.alt)
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenTimeout {
			t.Fatalf("broken is %v", se.Broken)
		}
		if took := time.Since(started); took != 3*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// TestHandshakeIsProvenByWhatFollowsIt, one round trip later.
func TestHandshakeIsProvenByWhatFollowsIt(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		started := time.Now()
		conn, err := v.tr.ProveQUIC(t.Context(), v.ep, v.alt)
		if took := time.Since(started); err != nil || took < 4*oneWay || took > 5*oneWay {
			t.Fatalf("%v after %v", err, took)
		}
		conn.Release()
	})
}

// TestHandshakeIsProvenLateToo: what follows it may all be there before anybody
// looks, on a busy machine beside its peer.
func TestHandshakeIsProvenLateToo(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		conn, err := v.tr.DialQUIC(t.Context(), v.ep, v.alt)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		time.Sleep(time.Second) // everything has arrived, and no more will come
		started := time.Now()
		err = conn.link.wire.(*http3Wire).proven(t.Context(), 3*time.Second)
		if took := time.Since(started); err != nil || took > 8*oneWay {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestPathThatSwallowsWhatFollowsAHandshakeCostsNoRequest: the connection never
// counts, and until the verdict it is not warm for anybody.
func TestPathThatSwallowsWhatFollowsAHandshakeCostsNoRequest(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		v.short.Store(true)
		started := time.Now()
		go func() {
			time.Sleep(time.Second)
			if _, warm := v.tr.Warm(v.ep, Want{HTTP3: true, Alternative: v.alt}); warm {
				t.Error("a connection that is not proven is warm")
			}
		}()
		_, err := v.tr.ProveQUIC(t.Context(), v.ep, v.alt)
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenAfterDeath {
			t.Fatalf("broken is %v", se.Broken)
		}
		if took := time.Since(started); took != 3*time.Second+2*oneWay {
			t.Fatalf("took %v", took)
		}
		if live := v.tr.Stats().HTTP3.Live; live != 0 {
			t.Fatalf("%d connections are live", live)
		}
	})
}

// TestBurstDialsAsManyConnectionsAsItFills, all at once and within the cap.
func TestBurstDialsAsManyConnectionsAsItFills(t *testing.T) {
	for _, tt := range []struct{ posts, conns int }{{32, 1}, {33, 2}, {100, 4}} {
		slow := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			ok200(w, r)
		}
		inVirtualTime(t, slow, func(t *testing.T, v *virtual) {
			started := time.Now()
			var wg sync.WaitGroup
			for range tt.posts {
				wg.Go(func() {
					resp, err := v.quic(t.Context(), v.ep).RoundTrip(t.Context(), post(v.ep, "body"))
					if err != nil || resp.Status != 200 {
						t.Errorf("%+v, %v", resp, err)
					}
				})
			}
			wg.Wait()
			// One round trip for the handshakes, one for the requests.
			if took := time.Since(started); took != time.Second+4*oneWay || v.tr.Stats().HTTP3.Live != tt.conns {
				t.Errorf("%d POSTs took %v on %d connections", tt.posts, took, v.tr.Stats().HTTP3.Live)
			}
		})
	}
}

// TestReceiverMayThinkForLongerThanTheIdleTimeout of the QUIC layer.
func TestReceiverMayThinkForLongerThanTheIdleTimeout(t *testing.T) {
	const thinks = 90 * time.Second
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(thinks)
		ok200(w, r)
	}
	inVirtualTime(t, slow, func(t *testing.T, v *virtual) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		resp, err := v.quic(ctx, v.ep).RoundTrip(ctx, post(v.ep, "body"))
		if err != nil || resp.Status != 200 || resp.FirstByte != thinks+2*oneWay {
			t.Fatalf("%+v, %v", resp, err)
		}
	})
}

func TestIdleQUICConnectionIsClosedProperlyAndInTime(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		if _, err := v.quic(t.Context(), v.ep).RoundTrip(t.Context(), post(v.ep, "body")); err != nil {
			t.Fatal(err)
		}
		idle := time.Now()
		app, ok := (<-v.closed).(*quic.ApplicationError) //nolint:errorlint // the cause is this very value
		if !ok || !app.Remote || app.ErrorCode != closeCode {
			t.Fatalf("the peer was told %v", app)
		}
		if took := time.Since(idle); took != 20*time.Second+oneWay {
			t.Fatalf("closed after %v", took)
		}
	})
}

// TestDeathAfterHandshakeIsNoticedByPackets, long before the deadline, and the
// connection is not used again.
func TestDeathAfterHandshakeIsNoticedByPackets(t *testing.T) {
	inVirtualTime(t, ok200, func(t *testing.T, v *virtual) {
		if _, err := v.quic(t.Context(), v.ep).RoundTrip(t.Context(), post(v.ep, "body")); err != nil {
			t.Fatal(err)
		}
		conn := v.quic(t.Context(), v.ep)
		time.Sleep(time.Second) // nothing of the first exchange is under way any more
		v.cut.Store(true)
		started := time.Now()
		failed := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			_, err := conn.RoundTrip(ctx, post(v.ep, "body"))
			failed <- err
		}()
		<-v.stalled
		if took := time.Since(started); took < minStall || took > time.Second {
			t.Fatalf("noticed after %v", took)
		}
		if _, warm := v.tr.Warm(v.ep, Want{HTTP3: true, Alternative: v.alt}); warm {
			t.Fatal("a suspect connection is warm")
		}
		if se := wantSent(t, <-failed, delivery.SentAmbiguous, delivery.CauseTimeout); se.Broken != delivery.BrokenAfterDeath {
			t.Fatalf("broken is %v", se.Broken)
		}
		if took := time.Since(started); took != 15*time.Second {
			t.Fatalf("the request ended after %v", took)
		}
	})
}

// TestSlowApplicationIsNoStall: the peer's QUIC stack acknowledges at once, its
// application takes its time.
func TestSlowApplicationIsNoStall(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(10 * time.Second)
		ok200(w, r)
	}
	inVirtualTime(t, slow, func(t *testing.T, v *virtual) {
		for range 3 {
			if _, err := v.quic(t.Context(), v.ep).RoundTrip(t.Context(), post(v.ep, "body")); err != nil {
				t.Fatal(err)
			}
		}
		if len(v.stalled) != 0 || v.tr.Stats().HTTP3.Live != 1 {
			t.Fatalf("%d stalls, %+v", len(v.stalled), v.tr.Stats())
		}
	})
}
