//go:build real

package realtest

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// originName is the name in the certificate that scripts/test-real makes.
const originName = "origin.test"

// hosts answers for originName with loopback and for nothing else.
type hosts struct{}

func (hosts) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == originName+"." {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// newTransport returns the transport as a node would have it, with the real
// address policy and loopback allowed.
func newTransport(t *testing.T) *transport.Transport {
	t.Helper()
	guard, err := netguard.New(netguard.Config{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: hosts{},
	})
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(environment(t, "DISPATCHER_REAL_CERT"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in DISPATCHER_REAL_CERT")
	}
	tr, err := transport.New(transport.Config{Guard: guard, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := tr.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// endpoint is originName at the port that an environment variable holds.
func endpoint(t *testing.T, variable string) delivery.Endpoint {
	t.Helper()
	port, err := strconv.ParseUint(environment(t, variable), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: originName, Port: uint16(port)}}}
}

// post is a request with the body and an id, in the order of the wire.
func post(ep delivery.Endpoint, path, id string, body []byte) *delivery.Request {
	return &delivery.Request{
		Path: path, Host: ep.Route.Origin.Authority(), Body: body, Length: int64(len(body)),
		Headers: []delivery.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Webhook-Id", Value: id}},
	}
}

// each calls f for every body, eight at a time.
func each(all []payloads.Payload, f func(payloads.Payload)) {
	work := make(chan payloads.Payload)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for p := range work {
				f(p)
			}
		})
	}
	for _, p := range all {
		work <- p
	}
	close(work)
	wg.Wait()
}

// overTCP sends on a warm connection or a new one.
func overTCP(ctx context.Context, tr *transport.Transport, ep delivery.Endpoint, p delivery.Protocol, r *delivery.Request) (*delivery.Response, bool, error) {
	opts := transport.TCPOptions{Protocol: p}
	conn, ok := tr.Warm(ep, transport.Want{TCP: opts})
	if !ok {
		var err error
		if conn, err = tr.DialTCP(ctx, ep, opts); err != nil {
			return nil, false, err
		}
	}
	resp, err := conn.RoundTrip(ctx, r)
	return resp, conn.Reused(), err
}

// overQUIC is the same for HTTP/3 at the origin's own port.
func overQUIC(ctx context.Context, tr *transport.Transport, ep delivery.Endpoint, r *delivery.Request) (*delivery.Response, bool, error) {
	alt := delivery.Alternative{Port: ep.Route.Origin.Port}
	conn, ok := tr.Warm(ep, transport.Want{HTTP3: true, Alternative: alt})
	if !ok {
		var err error
		if conn, err = tr.DialQUIC(ctx, ep, alt); err != nil {
			return nil, false, err
		}
	}
	resp, err := conn.RoundTrip(ctx, r)
	return resp, conn.Reused(), err
}
