package engine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Addresses from a documentation range stand for public ones: loopback is never
// asked of a proxy, since it would be the proxy's own.
var (
	publicAddr  = netip.MustParseAddr("203.0.113.7")
	publicRange = netip.MustParsePrefix("203.0.113.0/24")
)

// names is a resolver with a table; it counts nothing and knows nothing else.
type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if addrs := n[strings.TrimSuffix(host, ".")]; addrs != nil {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// proxied starts a proxy whose tunnels lead to loopback, and a node behind it.
func proxied(t *testing.T, config testnet.ProxyConfig, table names, adjust ...func(*Config)) (*bundle, *testnet.Proxy) {
	t.Helper()
	config.Route = func(target string) string {
		_, port, _ := net.SplitHostPort(target)
		return net.JoinHostPort("127.0.0.1", port)
	}
	p, err := testnet.StartProxy(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	b := setup(t, append([]func(*Config){func(c *Config) {
		c.Guard.AllowPrivate = []netip.Prefix{publicRange}
		c.Guard.Resolver = table
		c.Guard.Proxy = p.URL()
	}}, adjust...)...)
	return b, p
}

// named starts a receiver with a certificate for a name, and returns its URL
// under it.
func (b *bundle) named(name string, config testnet.Config) (*testnet.Receiver, string) {
	b.t.Helper()
	cert, err := b.ca.Issue(testnet.Leaf{Names: []string{name}})
	if err != nil {
		b.t.Fatal(err)
	}
	config.Certificate = &cert
	r, err := testnet.Start(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	return r, r.URL(name, "/hook")
}

// attempted waits for the first attempt of a delivery to end and returns it.
func (b *bundle) attempted(r Receipt, sub string) *delivery.Attempt {
	b.t.Helper()
	var attempt *delivery.Attempt
	b.eventually("attempted", func() bool {
		_, timeline := b.delivery(r, sub)
		for _, entry := range timeline {
			if entry.Attempt != nil {
				attempt = entry.Attempt
				return true
			}
		}
		return false
	})
	return attempt
}

// subscribeURL registers a URL, with the bundle's CA.
func (b *bundle) subscribeURL(id, url string, adjust ...func(*SubscriberInput)) {
	b.t.Helper()
	in := SubscriberInput{ID: &id, URL: &url, TLS: &delivery.TLSMaterial{CAPEM: b.ca.PEM()}}
	for _, f := range adjust {
		f(&in)
	}
	if _, err := b.CreateSubscriber(b.t.Context(), "t", in); err != nil {
		b.t.Fatal(err)
	}
}

// publishTo publishes one event for one subscriber.
func (b *bundle) publishTo(sub string) Receipt {
	b.t.Helper()
	r, err := b.Publish(b.t.Context(), "t", EventInput{Topic: "order.created", Payload: []byte(`{}`), Subscribers: []string{sub}})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func TestThroughTheProxyDeliveriesArriveOverTCPAtTheJudgedAddress(t *testing.T) {
	b, p := proxied(t, testnet.ProxyConfig{User: "node", Password: "secret"}, names{"hook.example": {publicAddr}})
	// It advertises HTTP/3, which no proxy carries.
	r, url := b.named("hook.example", testnet.Config{HTTP3: true})
	b.subscribeURL("s", url)
	for i := range 10 {
		b.delivered(b.publish(fmt.Sprintf("evt-%d", i)), "s")
	}
	asked := p.Asked()
	if len(asked) == 0 {
		t.Fatal("the proxy was not asked")
	}
	for _, a := range asked {
		if want := fmt.Sprintf("%s:%d", publicAddr, r.Port()); a.Target != want || a.Status != 200 {
			t.Errorf("the proxy was asked for %q (%d), want %q", a.Target, a.Status, want)
		}
	}
	if c := r.Tally().Counts(); c.H2 != 10 || c.QUICConnections != 0 || c.TCPConnections != int64(len(asked)) || c.Duplicates != 0 {
		t.Errorf("%+v", c)
	}
	if s := b.transport.Stats(); s.Sockets != 0 {
		t.Errorf("%d UDP sockets", s.Sockets)
	}
}

func TestTargetIsJudgedBeforeTheProxyIsAsked(t *testing.T) {
	b, p := proxied(t, testnet.ProxyConfig{}, names{
		"inside.example": {netip.MustParseAddr("10.1.2.3")},
		"half.example":   {publicAddr, netip.MustParseAddr("10.1.2.3")},
	})
	for _, host := range []string{"inside", "half"} {
		b.subscribeURL(host, "https://"+host+".example/hook")
		a := b.attempted(b.publishTo(host), host)
		if a.Result.Cause != delivery.CausePolicy || a.Result.Sent != delivery.SentNever || a.Outcome.Class != delivery.ClassRetry {
			t.Errorf("%s: %v %v %v: %s", host, a.Result.Cause, a.Result.Sent, a.Outcome.Class, a.Result.Detail)
		}
		for _, want := range []string{host + ".example", "10.1.2.3", "private", "allow_private"} {
			if !strings.Contains(a.Result.Detail, want) {
				t.Errorf("%s: %q does not name %q", host, a.Result.Detail, want)
			}
		}
	}
	if p.Connections() != 0 {
		t.Errorf("the proxy got %d connections: %v", p.Connections(), p.Asked())
	}
}

func TestNamesMayBeLeftToTheProxyAndLiteralsMayNot(t *testing.T) {
	b, p := proxied(t, testnet.ProxyConfig{}, names{}, func(c *Config) { c.Guard.ProxyRemoteDNS = true })
	r, url := b.named("hook.example", testnet.Config{})
	b.subscribeURL("s", url)
	b.delivered(b.publish("evt-1"), "s")
	if asked := p.Asked(); len(asked) != 1 || asked[0].Target != fmt.Sprintf("hook.example:%d", r.Port()) {
		t.Errorf("asked %v", asked)
	}
	if _, err := b.CreateSubscriber(t.Context(), "t", SubscriberInput{URL: new("https://10.1.2.3/hook")}); err == nil {
		t.Error("a denied literal was taken")
	}
}

func TestProxyThatRefusesIsNamedWithoutItsPassword(t *testing.T) {
	for name, config := range map[string]testnet.ProxyConfig{
		"refuses": {User: "node", Password: "hunter2", Status: 403}, "has another password": {User: "other", Password: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			b, p := proxied(t, config, names{"hook.example": {publicAddr}}, func(c *Config) {
				c.Guard.Proxy = strings.Replace(c.Guard.Proxy, "other:x", "node:hunter2", 1)
			})
			r, url := b.named("hook.example", testnet.Config{})
			b.subscribeURL("s", url)
			a := b.attempted(b.publish("evt-1"), "s")
			status := fmt.Sprint(p.Asked()[0].Status)
			if a.Result.Cause != delivery.CauseProxy || a.Result.Sent != delivery.SentNever || !strings.Contains(a.Result.Detail, status) {
				t.Errorf("%v %v: %s", a.Result.Cause, a.Result.Sent, a.Result.Detail)
			}
			if strings.Contains(a.Result.Detail, "hunter2") {
				t.Errorf("the password is shown: %s", a.Result.Detail)
			}
			if r.Tally().Counts().TCPConnections != 0 {
				t.Error("the receiver got a connection all the same")
			}
		})
	}
}

func TestNoProxyTargetsAreDialledDirectlyAndStayOnTCP(t *testing.T) {
	b, p := proxied(t, testnet.ProxyConfig{}, names{}, func(c *Config) { c.Guard.AllowPrivate = loopback })
	r := b.receiver(testnet.Config{HTTP3: true})
	b.subscribe("s", r)
	for i := range 3 {
		b.delivered(b.publish(fmt.Sprintf("evt-%d", i)), "s")
	}
	if c := r.Tally().Counts(); c.H2 != 3 || c.QUICConnections != 0 || p.Connections() != 0 {
		t.Errorf("%+v, %d connections to the proxy", c, p.Connections())
	}
}

func TestSourceAddressIsSeenByTheReceiverOverTCPAndHTTP3(t *testing.T) {
	b := setup(t, func(c *Config) { c.Egress.Source4 = netip.MustParseAddr("127.0.0.2") })
	var mu sync.Mutex
	from := map[string][]string{}
	r := b.receiver(testnet.Config{HTTP3: true, OnRequest: func(s testnet.Seen) {
		mu.Lock()
		defer mu.Unlock()
		from[s.Protocol] = append(from[s.Protocol], s.Remote)
	}})
	for _, protocol := range []string{"h1", "h2", "h3"} {
		b.subscribe(protocol, r, func(in *SubscriberInput) { in.Protocol = &protocol })
		b.delivered(b.publishTo(protocol), protocol)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, protocol := range []string{"h1", "h2", "h3"} {
		if got := from[protocol]; len(got) != 1 || !strings.HasPrefix(got[0], "127.0.0.2:") {
			t.Errorf("%s came from %v", protocol, got)
		}
	}
}

func TestMissingSourceAddressIsSaidAtTheStartAndOnTheAttempt(t *testing.T) {
	var log lockedBuffer
	b := setup(t, func(c *Config) {
		c.Egress.Source4 = netip.MustParseAddr("192.0.2.1")
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	if !strings.Contains(log.String(), "egress_source_missing") || !strings.Contains(log.String(), "192.0.2.1") {
		t.Errorf("the log does not say it: %s", log.String())
	}
	r := b.receiver(testnet.Config{})
	b.subscribe("s", r)
	a := b.attempted(b.publish("evt-1"), "s")
	if a.Result.Cause != delivery.CauseLocal || a.Outcome.Failure || !strings.Contains(a.Result.Detail, "192.0.2.1") {
		t.Errorf("%v, failure %v: %s", a.Result.Cause, a.Outcome.Failure, a.Result.Detail)
	}
}

// TestEveryPhaseEndsInTime: whatever hangs, the attempt ends by the phase's own
// bound or by the attempt's, and says which phase it was.
func TestEveryPhaseEndsInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts, nobody speaks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	muted := "https://" + silent.Addr().String() + "/hook"
	proxy, err := testnet.StartProxy(testnet.ProxyConfig{Silent: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	const soon = 100 * time.Millisecond
	briefly := func(c *Config) { c.Transport.DialTimeout = soon }
	cases := []struct {
		name    string
		url     string
		bound   func(*Config)
		timeout time.Duration // of the attempt
		cause   delivery.Cause
		sent    delivery.Sent
		says    string
	}{
		{"lookup, by the attempt", "https://hang.example/hook", nil, 200 * time.Millisecond, delivery.CauseTimeout, delivery.SentNever, "deadline"},
		{"lookup, by the dial", "https://hang.example/hook", briefly, time.Minute, delivery.CauseDNS, delivery.SentNever, "hang.example"},
		{"handshake, by the attempt", muted, nil, 200 * time.Millisecond, delivery.CauseTimeout, delivery.SentNever, "deadline"},
		{"handshake, by the dial", muted, briefly, time.Minute, delivery.CauseConnect, delivery.SentNever, "deadline"},
		{"connect, by the dial", muted, func(c *Config) {
			briefly(c)
			c.Transport.DialTCP = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done() // as where every SYN is lost
				return nil, ctx.Err()
			}
		}, time.Minute, delivery.CauseConnect, delivery.SentNever, "deadline"},
		{"proxy, by the dial", "https://hook.example/hook", func(c *Config) {
			briefly(c)
			c.Guard.AllowPrivate, c.Guard.Proxy, c.Guard.Resolver = []netip.Prefix{publicRange}, proxy.URL(), names{"hook.example": {publicAddr}}
		}, time.Minute, delivery.CauseProxy, delivery.SentNever, "deadline"},
		{"answer, by the attempt", "", nil, 300 * time.Millisecond, delivery.CauseTimeout, delivery.SentAmbiguous, "deadline"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(config *Config) {
				config.Guard.Resolver = hanging{}
				if c.bound != nil {
					c.bound(config)
				}
			})
			url := c.url
			if url == "" {
				url = b.receiver(testnet.Config{Behaviour: testnet.Behaviour{Delay: time.Hour}}).URL("", "/hook")
			}
			b.subscribeURL("s", url, func(in *SubscriberInput) { in.Timeout = &c.timeout })
			a := b.attempted(b.publish("evt-1"), "s")
			if a.Result.Cause != c.cause || a.Result.Sent != c.sent || !strings.Contains(a.Result.Detail, c.says) {
				t.Errorf("%v %v %q, want %v %v %q", a.Result.Cause, a.Result.Sent, a.Result.Detail, c.cause, c.sent, c.says)
			}
			if least := min(c.timeout, soon); a.Result.Phases.Total < least {
				t.Errorf("it was given up after %v", a.Result.Phases.Total)
			}
			b.eventually("nothing is in flight", func() bool { return b.InFlight() == 0 })
		})
	}
}

// hanging answers when its caller has given up.
type hanging struct{}

func (hanging) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

var (
	_ netguard.Resolver = names{}
	_ netguard.Resolver = hanging{}
	_ transport.Guard   = (*netguard.Guard)(nil)
)

// lockedBuffer is a log that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
