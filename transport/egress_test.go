package transport

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

func TestDefaultEgressBindsItsSourceAddress(t *testing.T) {
	b := setup(t, func(c *Config) { c.Source4 = netip.MustParseAddr("127.0.0.8") })
	remote := make(chan string, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remote <- r.RemoteAddr
		ok200(w, r)
	})
	ctx := within(t, 5*time.Second)
	tcp, quic := endpoint(serveTLS(t, handler).port), endpoint(serveQUIC(t, handler).port)
	for name, conn := range map[string]*Conn{"TCP": b.tcp(ctx, tcp), "QUIC": b.quic(ctx, quic)} {
		if _, err := conn.RoundTrip(ctx, post(tcp, "body")); err != nil {
			t.Fatal(err)
		}
		if got := <-remote; !strings.HasPrefix(got, "127.0.0.8:") {
			t.Errorf("%s came from %s", name, got)
		}
	}
}

// TestProxyIsDialledFromTheSourceAddressOfItsFamily: a proxy under a name may
// have addresses of both families, and a source address of one of them must not
// keep the other from being used.
func TestProxyIsDialledFromTheSourceAddressOfItsFamily(t *testing.T) {
	from := make(chan string, 1)
	ended := serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) { from <- conn.RemoteAddr().String() })
	for source, want := range map[string]string{"127.0.0.8": "127.0.0.8:", "::1": "127.0.0.1:"} {
		b := setup(t, func(c *Config) {
			if addr := netip.MustParseAddr(source); addr.Is4() {
				c.Source4 = addr
			} else {
				c.Source6 = addr
			}
		})
		b.guard.proxy = &netguard.Route{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(ended.port)}}
		if _, err := b.tr.DialTCP(within(t, 5*time.Second), endpoint(443), TCPOptions{}); err == nil {
			t.Fatal("a proxy that says nothing opened a tunnel")
		}
		if got := <-from; !strings.HasPrefix(got, want) {
			t.Errorf("with source %s the proxy was dialled from %s", source, got)
		}
	}
}

func TestSourceAddressOfTheWrongFamilyIsRefusedByName(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	_, err := New(Config{
		Guard: &fakeGuard{}, Source4: v6, Source6: v4,
		Egresses: map[string]Egress{"b": {Guard: &fakeGuard{}, Source6: netip.MustParseAddr("::ffff:192.0.2.1")}},
	})
	for _, want := range []string{"source4: 2001:db8::1", "source6: 192.0.2.1", "egresses[b].source6: ::ffff:192.0.2.1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestSourceAddressThatIsNotOursIsALocalErrorAndNoLackOfPorts, although the
// system has one word for both.
func TestSourceAddressThatIsNotOursIsALocalErrorAndNoLackOfPorts(t *testing.T) {
	b := setup(t, func(c *Config) { c.Source4 = netip.MustParseAddr("192.0.2.1") })
	ep, ctx := endpoint(443), within(t, 5*time.Second)
	_, err := b.tr.DialTCP(ctx, ep, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CauseLocal)
	_, err = b.tr.DialQUIC(ctx, ep, own(ep))
	if se := wantSent(t, err, delivery.SentNever, delivery.CauseLocal); se.Broken != delivery.BrokenNot {
		t.Errorf("it is held against the alternative: %v", se.Broken)
	}
}
