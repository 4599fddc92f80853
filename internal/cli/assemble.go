package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/api"
	"github.com/dispatcher-engine/dispatcher/internal/config"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/storage"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// newLogger makes the node's logger; its level can be changed while it runs.
func newLogger(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // config has checked it
	options := logOptions(level)
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// logOptions writes an error as its message: slog's text would be its %+v, which
// in the store's errors is a stack trace.
func logOptions(level slog.Leveler) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
		return a
	}}
}

// assemble maps the operator's configuration to each part's own.
func assemble(c *config.Config, version string, logger *slog.Logger) nodeConfig {
	return nodeConfig{
		listen: c.Listen, metricsListen: c.MetricsListen, token: c.APIToken.Reveal(), logger: logger,
		shutdown: c.ShutdownTimeout,
		limits:   api.Config{MaxPayload: int64(c.API.MaxPayload), MaxBatch: int64(c.API.MaxBatch), ReadOnlyDashboard: c.Dashboard.ReadOnly},
		engine: engine.Config{
			Version: version, MaxPayload: int64(c.API.MaxPayload), Logger: logger,
			DefaultConcurrency: c.Limits.PerSubscriber, DefaultTimeout: c.Timeouts.Attempt, DefaultMaxShare: c.Limits.PerTenant,
			Guard: guardConfig(c), Storage: storageConfig(c), Sched: schedConfig(c), Transport: transportConfig(c, logger),
			Egress:     engine.Egress{Source4: c.Egress.SourceIPv4, Source6: c.Egress.SourceIPv6},
			Operations: engine.Operations{Tenant: c.Operations.Tenant},
			Selector:   selectorConfig(c), Ingress: ingressConfig(c), Redis: redisConfig(c),
		},
	}
}

// redisConfig returns nil without a Redis.
func redisConfig(c *config.Config) *sched.RedisConfig {
	if !c.Redis.URL.IsSet() {
		return nil
	}
	return &sched.RedisConfig{URL: c.Redis.URL.Reveal(), Timeout: c.Redis.Timeout}
}

func guardConfig(c *config.Config) netguard.Config {
	g := netguard.Config{
		AllowPrivate: c.AllowPrivate, NAT64Prefixes: c.NAT64Prefixes, DenyExtra: c.Egress.Deny, AllowHTTP: c.AllowHTTP,
		AllowSingleLabel: c.Egress.SingleLabelHosts, Proxy: c.Egress.Proxy.Reveal(), NoProxy: c.Egress.NoProxy,
		ProxyRemoteDNS: c.Egress.ProxyRemoteDNS,
	}
	if len(c.Resolver.Servers) > 0 {
		g.Resolver = resolver(c.Resolver.Servers)
	}
	return g
}

// resolver asks the configured servers in turn instead of the system's.
func resolver(servers []netip.AddrPort) *net.Resolver {
	var turn atomic.Uint64
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		server := servers[turn.Add(1)%uint64(len(servers))]
		return new(net.Dialer).DialContext(ctx, network, server.String())
	}}
}

func storageConfig(c *config.Config) storage.Config {
	s := storage.Config{
		Dir: c.Data, Node: delivery.NodeID(c.Node), NodeKeyFile: c.NodeKeyFile, MemTable: int64(c.Storage.Memtable),
		Cache: int64(c.Storage.Cache), CommitDelay: c.Storage.CommitDelay, DedupeWindow: c.Retention.Dedupe,
		SpoolOver: int64(c.Storage.SpoolOver), DedupeMemory: int(c.Storage.DedupeMemory),
		Retention: storage.Retention{Events: c.Retention.Events, Dead: c.Retention.DeadLetters},
		Watermark: storage.Watermark{Bytes: int64(c.Storage.MinFree), Percent: c.Storage.MinFreePercent, RetryAfter: c.Ingress.RetryAfter},
	}
	if s.Watermark.Bytes == 0 {
		s.Watermark.Bytes = -1 // the operator's 0 is "no watermark"
	}
	return s
}

// ingressConfig returns nil for no ingress.
func ingressConfig(c *config.Config) *ingress.Config {
	i := &c.Ingress
	if c.IngressListen == "" {
		return nil
	}
	out := &ingress.Config{
		Addr: c.IngressListen, CertFile: i.TLSCert, KeyFile: i.TLSKey, DisableHTTP3: !i.HTTP3, AltSvcPort: i.AdvertisedPort,
		MaxConns: i.MaxConnections, MaxConnsPerClient: i.MaxConnectionsPerClient, Backlog: i.Backlog, TrustedProxies: i.TrustedProxies,
		HeaderTimeout: i.HeaderTimeout, BodyTimeout: i.BodyTimeout, IdleTimeout: i.IdleTimeout,
		MaxBody: int64(i.MaxBody), MemoryBody: int64(i.MemoryBody), MaxMemory: int64(i.MaxMemory), MaxSpool: int64(i.MaxSpool),
		MaxBodies: int64(i.MaxBodies), MaxBodiesPerClient: i.MaxBodiesPerClient,
		Failures: ingress.FailureConfig{PerSecond: i.FailuresPerSecond, Burst: i.FailuresBurst},
		Cache:    ingress.CacheConfig{TTL: i.SourceCache}, RetryAfter: i.RetryAfter,
	}
	out.TenantQuota = tenantQuota(c)
	if i.ControlPlaneURL != "" {
		out.ControlPlane = &ingress.ControlPlaneConfig{URL: i.ControlPlaneURL, Token: signing.NewSecret(i.ControlPlaneToken.Reveal())}
	}
	return out
}

// tenantQuota returns nil for none.
func tenantQuota(c *config.Config) *ingress.RateLimit {
	if c.Ingress.TenantPerSecond <= 0 {
		return nil
	}
	return &ingress.RateLimit{PerSecond: c.Ingress.TenantPerSecond, Burst: c.Ingress.TenantBurst}
}

func schedConfig(c *config.Config) sched.Config {
	return sched.Config{
		MaxInFlight: c.Limits.InFlight, MaxSlow: c.Limits.SlowInFlight, SlowAfter: c.Limits.SlowAfter,
		PayloadBytes: int64(c.Limits.PayloadMemory), DrainFor: cmp.Or(c.ShutdownTimeout, -1),
		Breaker: sched.BreakerPolicy{
			Consecutive: c.Breaker.Failures, Window: c.Breaker.Window, OpenFor: c.Breaker.OpenFor, OpenMax: c.Breaker.OpenMax,
		},
	}
}

func transportConfig(c *config.Config, logger *slog.Logger) transport.Config {
	return transport.Config{
		DialTimeout: c.Timeouts.Dial, QUICHandshakeTimeout: c.Timeouts.QUICHandshake,
		MaxTCPConnsPerRoute: c.Connections.TCPPerOrigin, MaxQUICConnsPerRoute: c.Connections.QUICPerOrigin,
		MaxIdleTCP: c.Connections.IdleTCP, MaxIdleHTTP3: c.Connections.IdleQUIC,
		IdleTimeoutTCP: c.Timeouts.IdleTCP, IdleTimeoutHTTP3: c.Timeouts.IdleQUIC,
		Qlog: qlogs(c.Qlog, logger),
	}
}

var modeKinds = map[config.HTTP3Mode]protoselect.ModeKind{
	config.HTTP3On: protoselect.ModeOn, config.HTTP3Off: protoselect.ModeOff,
	config.HTTP3Percent: protoselect.ModePercent, config.HTTP3Allowlist: protoselect.ModeAllowlist,
}

func selectorConfig(c *config.Config) protoselect.Config {
	return protoselect.Config{
		Mode:         protoselect.Mode{Kind: modeKinds[c.HTTP3.Mode], Percent: c.HTTP3.Percent, Origins: c.HTTP3Origins},
		Alternatives: protoselect.AltPolicy{Hosts: c.HTTP3Hosts, Ports: c.HTTP3Ports},
		DNS: protoselect.DNSConfig{
			Disabled: !c.Resolver.HTTPSRecords, Servers: c.Resolver.Servers, Timeout: c.Resolver.Timeout,
		},
	}
}
