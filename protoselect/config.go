package protoselect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// Config configures a [Selector]. The zero value is usable.
type Config struct {
	// Mode is the operator's switch for HTTP/3 at start; [Selector.SetMode]
	// changes it. Default: on.
	Mode Mode
	// Alternatives says which advertised alternatives may be used. Default: the
	// origin's own host and port only.
	Alternatives AltPolicy
	// Stagger is how long TCP waits for QUIC in a race while the round trip is
	// not known. Default 250 ms; 10 ms to 2 s.
	Stagger time.Duration
	// DialTimeout bounds a dial that nobody waits for any more: a probe, and a
	// race's loser on the way to its verdict. Default 10 s; 1 s to 1 min.
	DialTimeout time.Duration
	// MaxDials bounds QUIC dials and losing TCP dials in flight in the whole
	// process. Beyond it, deliveries use TCP without a race. Default 256; 1 to
	// 65536.
	MaxDials int
	// MaxRoutes bounds the memory: routes beyond it are forgotten, least
	// recently used first. About 1 KiB each. Default 16384; 1 to 1048576.
	MaxRoutes int
	// EgressHTTP3 reports whether UDP leaves by that egress; a CONNECT proxy
	// has none. Default: always.
	EgressHTTP3 func(egress string) bool
	// DNS configures lookups of HTTPS records.
	DNS DNSConfig
	// Memory keeps adverts, breakages and pins across restarts. Default: none.
	Memory Memory
	// SaveEvery is how long changes gather before they are saved. Default 5 s;
	// 10 ms to 1 min.
	SaveEvery time.Duration
	// Random gives jitter in [0, 1). Default: math/rand/v2.
	Random func() float64
	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Logger gets state changes at debug level and failures of the memory at
	// warn level. Default: discards.
	Logger *slog.Logger
}

// DNSConfig configures lookups of HTTPS records.
type DNSConfig struct {
	// Disabled turns the lookups off. Default: on.
	Disabled bool
	// Servers are the resolvers, asked in order. Default: the nameservers of
	// /etc/resolv.conf; with neither, lookups are off.
	Servers []netip.AddrPort
	// Wait is the most that a cold delivery to an unknown origin waits for the
	// record, once. Default 50 ms; 0 < Wait ≤ 50 ms.
	Wait time.Duration
	// Timeout of one query to one server. Default 1 s; 10 ms to 10 s.
	Timeout time.Duration
	// Attempts is how often each server is asked before the lookup fails.
	// Default 2; 1 to 5.
	Attempts int
	// Dial opens a connection to a server; network is "udp" or "tcp". Default:
	// a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxNames bounds the cache of answers. Default 4096; 1 to 1048576.
	MaxNames int
}

func (c Config) withDefaults() Config {
	c.Stagger = cmp.Or(c.Stagger, 250*time.Millisecond)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.MaxDials = cmp.Or(c.MaxDials, 256)
	c.MaxRoutes = cmp.Or(c.MaxRoutes, 16384)
	c.SaveEvery = cmp.Or(c.SaveEvery, 5*time.Second)
	if c.EgressHTTP3 == nil {
		c.EgressHTTP3 = func(string) bool { return true }
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.DNS = c.DNS.withDefaults()
	return c
}

func (d DNSConfig) withDefaults() DNSConfig {
	d.Wait = cmp.Or(d.Wait, 50*time.Millisecond)
	d.Timeout = cmp.Or(d.Timeout, time.Second)
	d.Attempts = cmp.Or(d.Attempts, 2)
	d.MaxNames = cmp.Or(d.MaxNames, 4096)
	if d.Dial == nil {
		d.Dial = new(net.Dialer).DialContext
	}
	if len(d.Servers) == 0 && !d.Disabled {
		d.Servers = systemServers()
		d.Disabled = len(d.Servers) == 0
	}
	return d
}

func (c Config) validate() error {
	return errors.Join(
		c.Mode.validate(),
		c.Alternatives.validate(),
		within("stagger", c.Stagger, 10*time.Millisecond, maxRaceStagger),
		within("dial_timeout", c.DialTimeout, time.Second, time.Minute),
		within("max_dials", c.MaxDials, 1, 1<<16),
		within("max_routes", c.MaxRoutes, 1, 1<<20),
		within("save_every", c.SaveEvery, 10*time.Millisecond, time.Minute),
		within("dns.wait", c.DNS.Wait, 1, 50*time.Millisecond),
		within("dns.timeout", c.DNS.Timeout, 10*time.Millisecond, 10*time.Second),
		within("dns.attempts", c.DNS.Attempts, 1, 5),
		within("dns.max_names", c.DNS.MaxNames, 1, 1<<20),
	)
}

func within[T cmp.Ordered](field string, v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%s: %v is not within %v and %v", field, v, low, high)
	}
	return nil
}
