package netguard

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// attempt scripts how a dial to one address goes.
type attempt struct {
	takes time.Duration
	err   error
}

// scriptedDialer plays attempts, in a bubble. It counts what is open.
type scriptedDialer struct {
	script map[string]attempt
	record recordingDialer
	open   atomic.Int64
	// deaf dials do not notice that they are cancelled.
	deaf bool
}

func (d *scriptedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	_, _ = d.record.DialContext(ctx, network, address)
	a := d.script[address]
	done := ctx.Done()
	if d.deaf {
		done = nil
	}
	select {
	case <-time.After(a.takes):
	case <-done:
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	d.open.Add(1)
	return &scriptedConn{address: address, open: &d.open}, nil
}

// scriptedConn is a connection that only knows where it leads.
type scriptedConn struct {
	net.Conn
	address string
	open    *atomic.Int64
}

func (c *scriptedConn) Close() error { c.open.Add(-1); return nil }

var errRefused = errors.New("refused")

func raceGuard(t *testing.T, d Dialer) *Guard {
	return newGuard(t, Config{
		Dialer:   d,
		Resolver: resolver(map[string][]string{"h.example.": {"2606::1", "8.8.8.1", "2606::2"}}),
	})
}

func TestDialContextStaggersItsAttempts(t *testing.T) {
	for _, c := range []struct {
		name   string
		script map[string]attempt
		winner string
		takes  time.Duration
		dials  int
	}{
		{"the first at once", nil, "[2606::1]:443", 0, 1},
		{"the first, slow but before the stagger", map[string]attempt{"[2606::1]:443": {takes: 200 * time.Millisecond}},
			"[2606::1]:443", 200 * time.Millisecond, 1},
		{"a failure starts the next at once", map[string]attempt{"[2606::1]:443": {err: errRefused}},
			"8.8.8.1:443", 0, 2},
		{"a black hole costs one stagger", map[string]attempt{"[2606::1]:443": {takes: time.Hour}},
			"8.8.8.1:443", 250 * time.Millisecond, 2},
		{"two black holes cost two", map[string]attempt{"[2606::1]:443": {takes: time.Hour}, "8.8.8.1:443": {takes: time.Hour}},
			"[2606::2]:443", 500 * time.Millisecond, 3},
		{"the first may still win", map[string]attempt{"[2606::1]:443": {takes: 300 * time.Millisecond}, "8.8.8.1:443": {takes: time.Hour}},
			"[2606::1]:443", 300 * time.Millisecond, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &scriptedDialer{script: c.script}
				begin := time.Now()
				conn, err := raceGuard(t, d).DialContext(t.Context(), "tcp", "h.example:443")
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != c.takes || conn.(*scriptedConn).address != c.winner {
					t.Errorf("%s after %v, want %s after %v", conn.(*scriptedConn).address, took, c.winner, c.takes)
				}
				synctest.Wait()
				if got := d.record.dials(); len(got) != c.dials || d.open.Load() != 1 {
					t.Errorf("dialled %v, %d open", got, d.open.Load())
				}
			})
		})
	}
}

func TestConnectionsThatComeTooLateAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scriptedDialer{deaf: true, script: map[string]attempt{"[2606::1]:443": {takes: time.Minute}}}
		conn, err := raceGuard(t, d).DialContext(t.Context(), "tcp", "h.example:443")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := d.open.Load(); n != 0 {
			t.Errorf("%d connections left open", n)
		}
	})
}

func TestDialContextFailsWithEveryReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := errors.New("unreachable")
		d := &scriptedDialer{script: map[string]attempt{
			"[2606::1]:443": {err: errRefused}, "8.8.8.1:443": {err: other}, "[2606::2]:443": {err: errRefused},
		}}
		_, err := raceGuard(t, d).DialContext(t.Context(), "tcp", "h.example:443")
		if !errors.Is(err, errRefused) || !errors.Is(err, other) {
			t.Errorf("%v", err)
		}
	})
}

func TestDialContextEndsWithItsContextAndNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := attempt{takes: time.Hour}
		d := &scriptedDialer{script: map[string]attempt{"[2606::1]:443": slow, "8.8.8.1:443": slow, "[2606::2]:443": slow}}
		cause := errors.New("connect phase took too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
		defer cancel()
		begin := time.Now()
		_, err := raceGuard(t, d).DialContext(ctx, "tcp", "h.example:443")
		if !errors.Is(err, cause) || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestDialContextKeepsToItsNetwork(t *testing.T) {
	for network, want := range map[string][]string{"tcp4": {"8.8.8.1:443"}, "tcp6": {"[2606::1]:443", "[2606::2]:443"}} {
		d := &recordingDialer{}
		_, err := raceGuard(t, d).DialContext(t.Context(), network, "h.example:443")
		if !errors.Is(err, errNotConnected) || !slices.Equal(d.dials(), want) {
			t.Errorf("%s: dialled %v, %v", network, d.dials(), err)
		}
	}
	d := &recordingDialer{}
	g := raceGuard(t, d)
	for _, c := range [][2]string{
		{"udp", "h.example:443"}, {"unix", "/run/x.sock"}, {"tcp6", "8.8.8.8:443"},
		{"tcp", "h.example"}, {"tcp", "h.example:https"}, {"tcp", "h.example:0"}, {"tcp", "h.example:99999"},
	} {
		if conn, err := g.DialContext(t.Context(), c[0], c[1]); err == nil {
			t.Errorf("%v: connected to %v", c, conn.RemoteAddr())
		}
	}
	if got := d.dials(); len(got) != 0 {
		t.Errorf("dialled %v", got)
	}
}

func TestDialControlJudgesTheAddressItIsGiven(t *testing.T) {
	var heard denials
	g := newGuard(t, Config{Observer: heard.observer(), AllowPrivate: prefixes("fe80::/10")})
	for _, c := range []struct {
		network, address string
		rule             Rule
	}{
		{"tcp4", "8.8.8.8:443", ""},
		{"tcp6", "[2606::1]:443", ""},
		{"tcp6", "[fe80::1%eth0]:443", ""},
		{"udp6", "[2606::1]:443", ""},
		{"tcp4", "127.0.0.1:443", RuleLoopback},
		{"tcp6", "[::ffff:127.0.0.1]:443", RuleLoopback},
		{"udp4", "10.0.0.1:443", RulePrivate},
		{"tcp", "h.example:443", RuleInvalid},
		{"tcp", "", RuleInvalid},
		{"unix", "/run/docker.sock", RuleInvalid},
		{"ip4:icmp", "8.8.8.8:0", RuleInvalid},
	} {
		err := g.DialControl(t.Context(), c.network, c.address, nil)
		if c.rule == "" {
			if err != nil {
				t.Errorf("%s %s: %v", c.network, c.address, err)
			}
			continue
		}
		if d := deniedAs(t, err, c.rule); d.Literal {
			t.Errorf("%+v: what is found this late is retried", d)
		}
	}
	if heard.count(StageTCP, RuleLoopback) != 2 || heard.count(StageUDP, RulePrivate) != 1 {
		t.Errorf("%+v", heard.list)
	}
}
