package transport

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestDemandForACertificateIsNamedWheneverItComes: in TLS 1.3 the peer's alert
// meets us before the slot is taken, before the first byte, or after it. An
// operator must read "certificate" in each case.
func TestDemandForACertificateIsNamedWheneverItComes(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		b := setup(t)
		var hits counter
		demand := func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, testCA().pool
		}
		var ep delivery.Endpoint
		if proto == delivery.ProtocolHTTP3 {
			ep = endpoint(serveQUIC(t, hits.handler(ok200), func(c *tls.Config, _ *quic.Config, _ *http3.Server) { demand(c) }).port)
		} else {
			ep = endpoint(serveTLS(t, hits.handler(ok200), func(s *http.Server) { demand(s.TLSConfig) }).port)
		}
		named := 0
		for range 10 {
			var conn *Conn
			var err error
			if proto == delivery.ProtocolHTTP3 {
				conn, err = b.tr.DialQUIC(within(t, 5*time.Second), ep, own(ep))
			} else {
				conn, err = b.tr.DialTCP(within(t, 5*time.Second), ep, TCPOptions{Protocol: proto})
			}
			if err == nil {
				_, err = conn.RoundTrip(within(t, 5*time.Second), post(ep, "{}"))
			}
			se := sendError(t, err)
			switch {
			case se.Cause == delivery.CauseTLS && strings.Contains(se.Detail, "certificate required"):
				named++
			case se.Cause == delivery.CauseReset && strings.Contains(se.Detail, "write tcp"):
				// The system gave up the connection under our write before anybody
				// could read the alert.
			default:
				t.Errorf("%v %v: %s", se.Sent, se.Cause, se.Detail)
			}
		}
		if named == 0 {
			t.Error("the alert was never seen")
		}
		hits.want(t, 0)
	})
}
