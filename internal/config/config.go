package config

import (
	"net/netip"
	"strings"
	"time"
)

// Config is everything an operator can set. [Load] fills it; its zero value is
// not usable. The key of a field in the file is its name in snake case, inside
// the section of its struct; the texts of the commented example, which say what
// each does, are in fields_*.go.
type Config struct {
	// Data is the directory of the store. Default: data.
	Data string
	// Node names this node in leases and on timelines. Default: node.
	Node string
	// NodeKeyFile holds the key that seals secrets. Default: "", node.key in Data.
	NodeKeyFile string
	// Listen is the address of the API. Default: 127.0.0.1:8080.
	Listen string
	// IngressListen is the address of the ingress, "" = none. Default: 127.0.0.1:8081.
	IngressListen string
	// MetricsListen serves metrics without a token, "" = not at all. Default: "".
	MetricsListen string
	// APIToken is the token of the API. Default: none, one is made in Data.
	APIToken Secret
	// AllowPrivate names ranges that may be dialled all the same. Default: none.
	AllowPrivate []netip.Prefix
	// AllowHTTP admits http URLs of subscribers. Default: false.
	AllowHTTP bool
	// NAT64Prefixes are those that the network translates. Default: none.
	NAT64Prefixes []netip.Prefix
	// HTTP3 is the switch for HTTP/3. Default: on.
	HTTP3 HTTP3
	// HTTP3Origins are those of the allowlist. Default: none.
	HTTP3Origins []string
	// HTTP3Hosts may serve as alternatives of any origin. Default: none.
	HTTP3Hosts []string
	// HTTP3Ports may be used by alternatives. Default: none.
	HTTP3Ports []uint16
	// ShutdownDelay is how long a node that will stop says so on /readyz and goes
	// on as before. Default: 1 s.
	ShutdownDelay time.Duration
	// ShutdownTimeout bounds the stop after it. Default: 30 s.
	ShutdownTimeout time.Duration

	// Log says what is logged, and how.
	Log Log
	// API bounds what is published.
	API API
	// Dashboard says what the pages under /ui/ may do.
	Dashboard Dashboard
	// Limits bounds attempts and memory.
	Limits Limits
	// Connections bounds connections to receivers.
	Connections Connections
	// Timeouts are those of an attempt and its connection.
	Timeouts Timeouts
	// Breaker says when a subscriber's circuit opens.
	Breaker Breaker
	// Operations says who hears of the node itself.
	Operations Operations
	// Retention says how long what is finished is kept.
	Retention Retention
	// Storage tunes the store.
	Storage Storage
	// Egress says how requests leave.
	Egress Egress
	// Resolver says who answers for names.
	Resolver Resolver
	// Redis shares limits and protocol memory between nodes.
	Redis Redis
	// Ingress is the edge receiver.
	Ingress Ingress
	// Qlog writes traces of QUIC connections.
	Qlog Qlog
	// Telemetry says where spans go.
	Telemetry Telemetry

	origins  map[string]Origin
	warnings []string
}

// Log says what is logged, and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// API bounds what is published.
type API struct {
	MaxPayload ByteSize // one event's payload
	MaxBatch   ByteSize // the body of one batch
}

// Dashboard says what the pages under /ui/ may do.
type Dashboard struct {
	ReadOnly bool // they change nothing, whatever the token may do
}

// Limits bounds attempts in flight and memory.
type Limits struct {
	InFlight      int           // attempts in flight on this node
	SlowInFlight  int           // attempts of slow receivers among them; 0 = half
	SlowAfter     time.Duration // from when on a receiver is slow
	PerTenant     int           // of a tenant that sets none; 0 = no own bound
	PerSubscriber int           // of a subscriber that sets none
	PayloadMemory ByteSize      // payloads held in memory
}

// Connections bounds connections to receivers.
type Connections struct {
	TCPPerOrigin  int
	QUICPerOrigin int
	IdleTCP       int
	IdleQUIC      int
}

// Timeouts are those of an attempt and its connection.
type Timeouts struct {
	Attempt       time.Duration // of a subscriber that sets none
	Dial          time.Duration
	QUICHandshake time.Duration
	IdleTCP       time.Duration
	IdleQUIC      time.Duration
}

// Breaker says when a subscriber's circuit opens, and for how long.
type Breaker struct {
	Failures int // in a row
	Window   int // outcomes the failure rate is taken over
	OpenFor  time.Duration
	OpenMax  time.Duration
}

// Operations says who hears of the node itself.
type Operations struct {
	Tenant string // its id, "" = none
}

// Retention says how long what is finished is kept.
type Retention struct {
	Events      time.Duration
	DeadLetters time.Duration
	Dedupe      time.Duration
}

// Storage tunes the store.
type Storage struct {
	Memtable       ByteSize
	Cache          ByteSize
	SpoolOver      ByteSize
	CommitDelay    time.Duration
	DedupeMemory   ByteSize
	MinFree        ByteSize // 0 = no watermark
	MinFreePercent float64
}

// Egress says how requests leave.
type Egress struct {
	Proxy            Secret // URL
	NoProxy          []string
	ProxyRemoteDNS   bool
	Deny             []netip.Prefix
	SingleLabelHosts bool
	SourceIPv4       netip.Addr // invalid = the system's choice
	SourceIPv6       netip.Addr
}

// Resolver says who answers for names.
type Resolver struct {
	Servers      []netip.AddrPort // none = the system's
	HTTPSRecords bool
	Timeout      time.Duration
}

// Redis shares limits and protocol memory between nodes.
type Redis struct {
	URL     Secret // "" = not used
	Timeout time.Duration
}

// Ingress is the edge receiver.
type Ingress struct {
	TLSCert                 string
	TLSKey                  string
	HTTP3                   bool
	AdvertisedPort          int // 0 = the port listened on
	TrustedProxies          []netip.Prefix
	MaxConnections          int
	MaxConnectionsPerClient int
	Backlog                 int // 0 = the system's
	HeaderTimeout           time.Duration
	BodyTimeout             time.Duration
	IdleTimeout             time.Duration
	MaxBody                 ByteSize
	MemoryBody              ByteSize
	MaxMemory               ByteSize
	MaxSpool                ByteSize
	MaxBodies               int
	MaxBodiesPerClient      int
	FailuresPerSecond       float64
	FailuresBurst           int
	TenantPerSecond         float64 // 0 = no limit
	TenantBurst             int
	SourceCache             time.Duration
	ControlPlaneURL         string // "" = the node's own sources
	ControlPlaneToken       Secret
	RetryAfter              time.Duration
}

// Qlog writes traces of QUIC connections.
type Qlog struct {
	Dir     string // "" = none
	Origins []string
}

// Telemetry says where spans go.
type Telemetry struct {
	OTLPEndpoint string // URL, "" = none are made
	OTLPHeaders  Secret // name=value,name=value
	SampleRatio  float64
}

// Headers returns the headers of OTLPHeaders by name.
func (t Telemetry) Headers() map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(t.OTLPHeaders.Reveal(), ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok {
			out[name] = value
		}
	}
	return out
}

// Default returns a Config with every default.
func Default() *Config {
	return &Config{
		Data: "data", Node: "node", Listen: "127.0.0.1:8080", IngressListen: "127.0.0.1:8081",
		ShutdownDelay: time.Second, ShutdownTimeout: 30 * time.Second,
		Log:         Log{Level: "info", Format: "text"},
		API:         API{MaxPayload: 25 * MiB, MaxBatch: 64 * MiB},
		Limits:      Limits{InFlight: 2048, SlowAfter: 2 * time.Second, PerSubscriber: 8, PayloadMemory: 16 * MiB},
		Connections: Connections{TCPPerOrigin: 16, QUICPerOrigin: 4, IdleTCP: 4000, IdleQUIC: 2000},
		Timeouts: Timeouts{
			Attempt: 15 * time.Second, Dial: 10 * time.Second, QUICHandshake: 3 * time.Second,
			IdleTCP: time.Minute, IdleQUIC: 20 * time.Second,
		},
		Breaker:   Breaker{Failures: 5, Window: 20, OpenFor: 30 * time.Second, OpenMax: 10 * time.Minute},
		Retention: Retention{Events: 7 * day, DeadLetters: 30 * day, Dedupe: 4 * day},
		Storage: Storage{
			Memtable: 8 * MiB, Cache: 16 * MiB, SpoolOver: MiB, CommitDelay: 8 * time.Millisecond,
			DedupeMemory: 12 * MiB, MinFree: GiB, MinFreePercent: 5,
		},
		Resolver:  Resolver{HTTPSRecords: true, Timeout: time.Second},
		Telemetry: Telemetry{SampleRatio: 1},
		Redis:     Redis{Timeout: 5 * time.Millisecond},
		Ingress: Ingress{
			HTTP3: true, MaxConnections: 16_384, MaxConnectionsPerClient: 512,
			HeaderTimeout: 5 * time.Second, BodyTimeout: 30 * time.Second, IdleTimeout: time.Minute,
			MaxBody: 25 * MiB, MemoryBody: 64 * KiB, MaxMemory: 128 * MiB, MaxSpool: 2 * GiB,
			MaxBodies: 4096, MaxBodiesPerClient: 512,
			FailuresPerSecond: 5, FailuresBurst: 50, SourceCache: time.Minute, RetryAfter: 30 * time.Second,
		},
	}
}
