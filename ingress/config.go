package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"time"
)

// Config of an [Ingress]. The zero value of every field is its default.
type Config struct {
	// Addr is the TCP address to listen on, and the UDP address for HTTP/3.
	// Default: 127.0.0.1:8081.
	Addr string
	// CertFile and KeyFile are PEM files; with both, TLS is served. They are read
	// again when they change. Default: plain HTTP/1.1.
	CertFile, KeyFile string
	// DisableHTTP3 turns HTTP/3 off, which is on with a certificate.
	DisableHTTP3 bool
	// AltSvcPort is the UDP port that is advertised, if another one is mapped to
	// ours. Default: the port that is listened on.
	AltSvcPort int
	// AltSvcMaxAge is for how long HTTP/3 is advertised. Default: 24 h.
	AltSvcMaxAge time.Duration
	// Backlog is the length of the accept queue, up to net.core.somaxconn, which
	// is the default. Linux only.
	Backlog int
	// MaxConns and MaxConnsPerClient bound TCP connections: of the whole node,
	// where further ones wait in the accept queue, and of one address (an IPv6 /56)
	// that is no trusted proxy, where further ones are closed. Default: 16,384
	// and 512.
	MaxConns, MaxConnsPerClient int
	// MaxQUICConns bounds connections over QUIC. Default: 4,096.
	MaxQUICConns int
	// TrustedProxies are the peers whose X-Forwarded-For is believed. Default:
	// none; the peer is the client.
	TrustedProxies []netip.Prefix

	// HeaderTimeout bounds a TLS handshake, and the headers of a request. Default: 5 s.
	HeaderTimeout time.Duration
	// BodyTimeout bounds the body of a request. Default: 30 s.
	BodyTimeout time.Duration
	// IdleTimeout is how long a connection is kept without a request. Default: 60 s.
	IdleTimeout time.Duration
	// EnqueueTimeout bounds storing an event. Default: 10 s.
	EnqueueTimeout time.Duration
	// StopTimeout bounds Stop if its context has no deadline. Default: 15 s.
	StopTimeout time.Duration

	// MaxHeaderBytes bounds the headers of a request. Default: 32 KiB.
	MaxHeaderBytes int
	// MaxBody is the largest body in bytes that any source may accept. Default:
	// 25 MiB.
	MaxBody int64
	// MemoryBody is up to how many bytes a body stays in memory; a larger one goes
	// to the spool. Default: 64 KiB.
	MemoryBody int64
	// MaxBodies and MaxBodiesPerClient bound the bodies that are received at a
	// time: by the whole node, and from one address (an IPv6 /56), so that no
	// single one can take all places by sending slowly. Default: 4,096 and 512.
	MaxBodies          int64
	MaxBodiesPerClient int
	// MaxMemory bounds the bytes of bodies in memory. When it is used up, bodies
	// go to the spool early. Default: 128 MiB.
	MaxMemory int64
	// MaxSpool bounds the bytes in spool files, which nobody has verified yet: it
	// has to leave the store the room that it needs. Default: 2 GiB.
	MaxSpool int64
	// Decoders bounds the bodies that are expanded at a time. Default: one for
	// each processor.
	Decoders int

	// Failures limits what bad signatures may cost.
	Failures FailureConfig
	// Cache bounds what is remembered about sources.
	Cache CacheConfig
	// ControlPlane reads sources from elsewhere; nil = the node's own.
	ControlPlane *ControlPlaneConfig
	// TenantQuota limits the events of each tenant over all its sources; nil = no
	// limit. A source's rate_limit is beside it.
	TenantQuota *RateLimit
	// RetryAfter is what a sender is told when the node cannot take an event.
	// Default: 30 s.
	RetryAfter time.Duration
	// KernelEvery is how often the kernel's counters are read. Default: 10 s;
	// negative = never.
	KernelEvery time.Duration

	// Logger gets what an operator must know, and at debug level one line for
	// each request. Default: discards.
	Logger *slog.Logger
	// Observer hears what happens; its zero value hears nothing.
	Observer Observer
}

// nodeMaxBody is the default of Config.MaxBody.
const nodeMaxBody = 25 << 20

// levelRequest is the level of the line for each request.
const levelRequest = slog.LevelDebug

func orDefault[T int | int64 | float64 | string | time.Duration](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// withDefaults returns a copy with every unset field filled in.
func (c Config) withDefaults() Config {
	orDefault(&c.Addr, "127.0.0.1:8081")
	orDefault(&c.AltSvcMaxAge, 24*time.Hour)
	orDefault(&c.MaxConns, 16_384)
	orDefault(&c.MaxConnsPerClient, 512)
	orDefault(&c.MaxQUICConns, 4_096)
	orDefault(&c.HeaderTimeout, 5*time.Second)
	orDefault(&c.BodyTimeout, 30*time.Second)
	orDefault(&c.IdleTimeout, time.Minute)
	orDefault(&c.EnqueueTimeout, 10*time.Second)
	orDefault(&c.StopTimeout, 15*time.Second)
	orDefault(&c.MaxHeaderBytes, 32<<10)
	orDefault(&c.MaxBody, nodeMaxBody)
	orDefault(&c.MemoryBody, 64<<10)
	orDefault(&c.MaxBodies, 4_096)
	orDefault(&c.MaxBodiesPerClient, 512)
	orDefault(&c.MaxMemory, 128<<20)
	orDefault(&c.MaxSpool, 2<<30)
	orDefault(&c.Decoders, runtime.GOMAXPROCS(0))
	orDefault(&c.Failures.PerSecond, 5)
	orDefault(&c.Failures.Burst, 50)
	orDefault(&c.Failures.Entries, 16_384)
	orDefault(&c.Cache.TTL, time.Minute)
	if c.ControlPlane != nil {
		orDefault(&c.Cache.Stale, 24*time.Hour)
	}
	orDefault(&c.Cache.Sources, 10_000)
	orDefault(&c.Cache.Unknown, 16_384)
	orDefault(&c.Cache.Timeout, 3*time.Second)
	orDefault(&c.Cache.RetryAfter, 5*time.Second)
	orDefault(&c.RetryAfter, 30*time.Second)
	orDefault(&c.KernelEvery, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports everything that is wrong, each with its field. It is meant
// for a Config with its defaults.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", field, value, rule))
		}
	}
	check((c.CertFile == "") == (c.KeyFile == ""), "cert_file", "certificate and key come together", c.CertFile)
	check(c.AltSvcPort >= 0 && c.AltSvcPort <= 65535, "alt_svc_port", "must be a port", c.AltSvcPort)
	check(c.Backlog >= 0, "backlog", "must not be negative", c.Backlog)
	check(c.MemoryBody <= c.MaxBody, "memory_body", "must not be above max_body", c.MemoryBody)
	check(c.MaxBody <= 1<<30, "max_body", "at most 1 GiB", c.MaxBody)
	check(c.MaxSpool >= c.MaxBody, "max_spool", "must hold at least one body of max_body", c.MaxSpool)
	check(c.MaxMemory >= MaxBuffered, "max_memory", fmt.Sprintf("must hold at least one body of %d bytes", MaxBuffered), c.MaxMemory)
	check(c.Failures.PerSecond > 0 && c.Failures.PerSecond <= maxPerSecond, "failures.per_second", "must be above 0, at most 1000000", c.Failures.PerSecond)
	check(c.Cache.Stale >= 0, "cache.stale", "must not be negative", c.Cache.Stale)
	for field, d := range map[string]time.Duration{
		"alt_svc_max_age": c.AltSvcMaxAge, "header_timeout": c.HeaderTimeout, "body_timeout": c.BodyTimeout,
		"idle_timeout": c.IdleTimeout, "enqueue_timeout": c.EnqueueTimeout, "stop_timeout": c.StopTimeout,
		"cache.ttl": c.Cache.TTL, "cache.timeout": c.Cache.Timeout, "cache.retry_after": c.Cache.RetryAfter, "retry_after": c.RetryAfter,
	} {
		check(d > 0, field, "must be above 0", d)
	}
	for field, n := range map[string]int64{
		"max_conns": int64(c.MaxConns), "max_conns_per_client": int64(c.MaxConnsPerClient), "max_quic_conns": int64(c.MaxQUICConns),
		"max_header_bytes": int64(c.MaxHeaderBytes), "max_body": c.MaxBody, "memory_body": c.MemoryBody, "max_bodies": c.MaxBodies, "max_bodies_per_client": int64(c.MaxBodiesPerClient),
		"decoders": int64(c.Decoders), "failures.burst": int64(c.Failures.Burst), "failures.entries": int64(c.Failures.Entries),
		"cache.sources": int64(c.Cache.Sources), "cache.unknown": int64(c.Cache.Unknown),
	} {
		check(n > 0, field, "must be above 0", n)
	}
	for i, p := range c.TrustedProxies {
		check(p.IsValid() && p == p.Masked(), fmt.Sprintf("trusted_proxies[%d]", i), "must be a prefix without bits after its length", p)
	}
	var f faults
	f.rateLimit(c.TenantQuota)
	for _, field := range f.fields {
		errs = append(errs, fmt.Errorf("tenant_quota: %w", field))
	}
	return errors.Join(errs...)
}
