package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// DialContext resolves, judges and connects over TCP. It has the type of
// http.Transport.DialContext and is for everything
// that makes a request on a tenant's behalf outside the delivery path: token
// endpoints, diagnosis, probes. address is host:port with a numeric port.
//
// Attempts are staggered (RFC 8305 section 5): the next one starts when the one
// before has failed or DialStagger has passed. The first connection wins, the
// others are closed.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if !validPort(portText) {
		return nil, fmt.Errorf("dial %s: port must be a number from 1 to 65535", quoteHost(host))
	}
	port, _ := strconv.ParseUint(portText, 10, 16)
	targets, err := g.ResolvePort(ctx, host, uint16(port))
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	targets, err = ofNetwork(network, targets)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", quoteHost(host), err)
	}
	conn, err := g.race(ctx, network, targets)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", quoteHost(host), err)
	}
	return conn, nil
}

// ofNetwork keeps the targets that network can reach.
func ofNetwork(network string, targets []netip.AddrPort) ([]netip.AddrPort, error) {
	var keep func(netip.Addr) bool
	switch network {
	case "tcp":
		return targets, nil
	case "tcp4":
		keep = netip.Addr.Is4
	case "tcp6":
		keep = netip.Addr.Is6
	default:
		return nil, net.UnknownNetworkError(network)
	}
	var out []netip.AddrPort
	for _, t := range targets {
		if keep(t.Addr()) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, ErrNoAddress
	}
	return out, nil
}

// dialed is how one attempt ended.
type dialed struct {
	conn net.Conn
	err  error
}

// race runs the staggered attempts. Every attempt's goroutine ends with its dial;
// what connects after the race is closed by whoever collects it.
func (g *Guard) race(ctx context.Context, network string, targets []netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(targets)) // room for all: no attempt blocks
	started, ended := 0, 0
	start := func() {
		target := targets[started].String()
		started++
		go func() {
			conn, err := g.dialer.DialContext(ctx, network, target)
			results <- dialed{conn, err}
		}()
	}
	defer func() {
		if late := started - ended; late > 0 {
			go closeLate(results, late)
		}
	}()

	stagger := time.NewTimer(g.stagger)
	defer stagger.Stop()
	start()
	var errs []error
	for {
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
			if ended == len(targets) {
				return nil, errors.Join(errs...)
			}
		case <-stagger.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if started < len(targets) {
			start()
			stagger.Reset(g.stagger)
		}
	}
}

// closeLate closes what n cancelled attempts may still bring.
func closeLate(results <-chan dialed, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close()
		}
	}
}
