package bench

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// trace is how an attempt was carried.
type trace = protoselect.Trace

// stack is the node's own way to the wire, without the node: selector and
// transport with a policy.
type stack struct {
	policy    delivery.ProtocolPolicy
	transport *transport.Transport
	selector  *protoselect.Selector

	mu         sync.Mutex
	handshakes map[string]int
	broken     map[string]int
}

func newStack(ctx context.Context, v Variant, estate *servers, allow netip.Prefix) (*stack, error) {
	guard, err := netguard.New(netguard.Config{AllowPrivate: []netip.Prefix{allow}, Resolver: estate})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(estate.CAPEM)) {
		return nil, errors.New("the servers' CA cannot be read")
	}
	s := &stack{policy: policies[v.Protocol]}
	s.begin()
	config := transport.Config{
		Guard: guard, RootCAs: roots, DialTCP: dialTCP(v.Congestion),
		Observer: transport.Observer{
			Handshake: s.shook,
			// The selector is there before the first request that could stall.
			Stalled: func(r delivery.Route, alt delivery.Alternative) { s.selector.Stalled(r, alt) },
		},
	}
	if v.Cold {
		// The connection that becomes idle closes the one that was: the next visit
		// of an endpoint, some visits later, finds none.
		config.MaxIdleTCP, config.MaxIdleHTTP3 = 1, 1
	}
	if s.transport, err = transport.New(config); err != nil {
		return nil, err
	}
	s.selector, err = protoselect.New(protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}}, engine.Dialer(s.transport))
	if err == nil {
		err = s.selector.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.transport.Close(ctx))
	}
	return s, nil
}

// dialTCP is the transport's own dialer with a congestion control.
func dialTCP(congestion string) func(ctx context.Context, network, address string) (net.Conn, error) {
	if congestion == "" {
		return nil
	}
	d := net.Dialer{
		FallbackDelay:   -1,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         func(_, _ string, c syscall.RawConn) error { return link.SetCongestion(c, congestion) },
	}
	return d.DialContext
}

func (s *stack) do(ctx context.Context, ep delivery.Endpoint, req *delivery.Request) (*delivery.Response, trace, error) {
	return s.selector.Do(ctx, ep, s.policy, req)
}

func (s *stack) shook(e transport.HandshakeEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Cause == delivery.CauseNone {
		s.handshakes[e.Protocol.String()]++
		return
	}
	name := "tcp"
	if e.Protocol == delivery.ProtocolHTTP3 {
		name = e.Protocol.String()
	}
	s.broken[name]++
}

// begin forgets the handshakes so far, end returns those since then.
func (s *stack) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handshakes, s.broken = map[string]int{}, map[string]int{}
}

func (s *stack) end() (handshakes, broken map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.handshakes), maps.Clone(s.broken)
}

func (s *stack) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return errors.Join(s.selector.Stop(ctx), s.transport.Close(ctx))
}
