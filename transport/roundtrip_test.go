package transport

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// seen is one request as a server saw it.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.bodies = append(s.bodies, string(body))
	s.mu.Unlock()
	_, _ = io.WriteString(w, "ok")
}

func TestOnePostOverEachProtocol(t *testing.T) {
	for _, proto := range []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		t.Run(proto.String(), func(t *testing.T) {
			var got seen
			b := setup(t)
			ctx := within(t, 5*time.Second)
			var conn *Conn
			var ep delivery.Endpoint
			if proto == delivery.ProtocolHTTP3 {
				ep = endpoint(serveQUIC(t, &got).port)
				conn = b.quic(ctx, ep)
			} else {
				ep = endpoint(serveTLS(t, &got).port)
				var err error
				conn, err = b.tr.DialTCP(ctx, ep, TCPOptions{Protocol: proto})
				if err != nil {
					t.Fatal(err)
				}
			}
			if conn.Protocol() != proto || conn.Reused() || conn.Handshake().Remote == "" {
				t.Fatalf("connection is %v, reused %v, %+v", conn.Protocol(), conn.Reused(), conn.Handshake())
			}
			resp, err := conn.RoundTrip(ctx, post(ep, `{"a":1}`))
			if err != nil {
				t.Fatal(err)
			}
			if resp.Status != 200 || string(resp.Body) != "ok" || resp.Truncated || resp.BodyErr != nil || resp.BytesSent != 7 {
				t.Fatalf("response %+v", resp)
			}
			got.mu.Lock()
			defer got.mu.Unlock()
			r := got.requests[0]
			if r.Method != "POST" || r.RequestURI != "/hook?x=1" || r.ContentLength != 7 || got.bodies[0] != `{"a":1}` ||
				r.Host != ep.Route.Origin.Authority() {
				t.Fatalf("server saw %v %v %v %q", r.Method, r.RequestURI, r.ContentLength, got.bodies[0])
			}
			for name, want := range map[string]string{
				"Accept-Encoding": "identity", "User-Agent": "dispatcher/test", "Webhook-Id": "evt_1", "Content-Length": "7",
			} {
				if v := r.Header.Get(name); v != want && name != "Content-Length" {
					t.Errorf("%s is %q, want %q", name, v, want)
				}
			}
		})
	}
}
