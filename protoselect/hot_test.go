package protoselect

import (
	"context"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// warmDialer always has a warm HTTP/3 connection that answers at once.
type warmDialer struct {
	Dialer
	conn warmConn
}

type warmConn struct{ resp *delivery.Response }

func (d *warmDialer) Warm(delivery.Endpoint, Want) (Conn, bool) { return &d.conn, true }

func (c *warmConn) RoundTrip(context.Context, *delivery.Request) (*delivery.Response, error) {
	return c.resp, nil
}
func (c *warmConn) Protocol() delivery.Protocol   { return delivery.ProtocolHTTP3 }
func (c *warmConn) Handshake() delivery.Handshake { return delivery.Handshake{Remote: "192.0.2.1:443"} }
func (c *warmConn) Release()                      {}
func (c *warmConn) Reused() bool                  { return true }
func (c *warmConn) RTT() time.Duration            { return 0 }

func hotSelector(tb testing.TB) (*Selector, delivery.Endpoint) {
	d := &warmDialer{conn: warmConn{resp: withAltSvc(`h3=":443"; ma=86400`)}}
	s, err := New(Config{DNS: DNSConfig{Disabled: true}}, d)
	if err != nil {
		tb.Fatal(err)
	}
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"; ma=86400`)
	return s, ep
}

// TestWarmPathAllocatesNothing: choosing a warm connection and taking its answer
// into the memory costs no garbage, whatever the answer advertises.
func TestWarmPathAllocatesNothing(t *testing.T) {
	s, ep := hotSelector(t)
	req := request()
	allocs := testing.AllocsPerRun(1000, func() {
		if _, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, req); err != nil || tr.Protocol != delivery.ProtocolHTTP3 {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations per delivery", allocs)
	}
}

func BenchmarkWarm(b *testing.B) {
	s, ep := hotSelector(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := request()
		for pb.Next() {
			if _, _, err := s.Do(b.Context(), ep, delivery.ProtocolAuto, req); err != nil {
				b.Error(err)
			}
		}
	})
}
