package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// inspect looks at a loopback port.
func (b *bundle) inspect(ep delivery.Endpoint, overQUIC bool) Inspected {
	b.t.Helper()
	return b.tr.Inspect(within(b.t, 5*time.Second), ep, netip.AddrPortFrom(loopback, ep.Route.Origin.Port), overQUIC)
}

func TestInspectShowsWhatADeliveryWouldMeet(t *testing.T) {
	b := setup(t)
	asks := func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }
	tcp := endpoint(serveTLS(t, http.HandlerFunc(ok200), func(s *http.Server) { asks(s.TLSConfig) }).port)
	udp := endpoint(serveQUIC(t, http.HandlerFunc(ok200), func(c *tls.Config, _ *quic.Config, _ *http3.Server) { asks(c) }).port)
	for alpn, got := range map[string]Inspected{"h2": b.inspect(tcp, false), "h3": b.inspect(udp, true)} {
		if got.Err != nil || got.Unverified != nil || got.TLS == nil {
			t.Fatalf("%s: %+v", alpn, got)
		}
		if got.TLS.NegotiatedProtocol != alpn || got.TLS.Version != tls.VersionTLS13 || len(got.TLS.VerifiedChains) == 0 || got.TLS.DidResume {
			t.Errorf("%s: %+v", alpn, got.TLS)
		}
		if !got.CertificateAsked || (got.QUICVersion == "v1") != (alpn == "h3") {
			t.Errorf("%s: certificate asked %v, QUIC %q", alpn, got.CertificateAsked, got.QUICVersion)
		}
		if h := got.Handshake; h.Remote == "" || alpn == "h2" && (h.Connect == 0 || h.TLS == 0) || alpn == "h3" && h.QUIC == 0 {
			t.Errorf("%s: %+v", alpn, h)
		}
	}
	if s := b.tr.Stats(); s.HTTP2.Live+s.HTTP3.Live != 0 {
		t.Errorf("an inspection left connections in the pool: %+v", s)
	}
}

// TestInspectKeepsTheChainThatItRefuses, and judges it as a delivery does.
func TestInspectKeepsTheChainThatItRefuses(t *testing.T) {
	other := func(c *tls.Config) { c.Certificates = []tls.Certificate{testCA().issue("other.test")} }
	b := setup(t)
	tcp := endpoint(serveTLS(t, http.HandlerFunc(ok200), func(s *http.Server) { other(s.TLSConfig) }).port)
	udp := endpoint(serveQUIC(t, http.HandlerFunc(ok200), func(c *tls.Config, _ *quic.Config, _ *http3.Server) { other(c) }).port)
	for name, got := range map[string]Inspected{"TCP": b.inspect(tcp, false), "QUIC": b.inspect(udp, true)} {
		wrong, ok := errors.AsType[x509.HostnameError](got.Unverified)
		if !ok || wrong.Host != originName || got.TLS == nil || got.TLS.PeerCertificates[0].DNSNames[0] != "other.test" {
			t.Fatalf("%s: %v, %+v", name, got.Unverified, got.TLS)
		}
		if len(got.TLS.VerifiedChains) != 0 {
			t.Errorf("%s: a chain counts as verified", name)
		}
	}
	_, err := b.tr.DialTCP(within(t, 5*time.Second), tcp, TCPOptions{})
	if got, want := b.inspect(tcp, false).Err, sendError(t, err); got == nil || got.Cause != want.Cause || got.Detail != want.Detail {
		t.Errorf("inspected: %v, dialled: %v", got, want)
	}
	_, err = b.tr.DialQUIC(within(t, 5*time.Second), udp, own(udp))
	if got, want := b.inspect(udp, true).Err, sendError(t, err); got == nil || got.Cause != want.Cause || got.Broken != want.Broken {
		t.Errorf("inspected: %v, dialled: %v", got, want)
	}
}

func TestInspectSaysHowFarItCame(t *testing.T) {
	b := setup(t, func(c *Config) { c.DialTimeout = 300 * time.Millisecond })
	silent := serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) { _, _ = io.Copy(io.Discard, conn) })
	got := b.inspect(endpoint(silent.port), false)
	if got.Err == nil || got.Err.Cause != delivery.CauseConnect || got.Handshake.Connect == 0 || got.Handshake.TLS != 0 || got.TLS != nil {
		t.Errorf("a peer that does not speak: %+v", got)
	}
	dead, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	got = b.inspect(endpoint(portOf(dead.LocalAddr())), true)
	if got.Err == nil || got.Err.Sent != delivery.SentNever || got.TLS != nil {
		t.Errorf("a UDP port that swallows: %+v", got)
	}
	if plain := b.inspect(plainEndpoint(servePlain(t, http.HandlerFunc(ok200)).port), false); plain.Err != nil || plain.TLS != nil {
		t.Errorf("plain http: %+v", plain)
	}
	b.guard.denied[loopback] = true
	for _, overQUIC := range []bool{false, true} {
		if got := b.inspect(endpoint(silent.port), overQUIC); got.Err == nil || got.Err.Cause != delivery.CausePolicy {
			t.Errorf("denied, QUIC %v: %+v", overQUIC, got)
		}
	}
	ep := endpoint(silent.port)
	ep.Route.Egress = "unknown"
	if got := b.inspect(ep, false); got.Err == nil || !strings.Contains(got.Err.Detail, "unknown") {
		t.Errorf("unknown egress: %+v", got)
	}
}
