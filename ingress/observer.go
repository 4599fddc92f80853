package ingress

import (
	"net/netip"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress/kernel"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// Observer is told what the ingress does. Every func may be nil; all are called
// from many goroutines, without a lock held, and must not block. Tenants,
// sources and addresses are for logs; they are no metric labels.
type Observer struct {
	// Answered: a request was answered. One call for each request.
	Answered func(Answered)
	// LookedUp: the configuration of a source was wanted.
	LookedUp func(Lookup)
	// ConnRefused: a connection was closed before a byte of it was read.
	ConnRefused func(ConnRefusal)
	// Certificate: the certificate was loaded, or could not be.
	Certificate func(CertificateEvent)
	// Kernel: what the kernel counted, every [Config].KernelEvery.
	Kernel func(KernelSample)
}

// Answered is one request and how it ended.
type Answered struct {
	Outcome  Outcome
	Status   int
	Protocol delivery.Protocol
	Scheme   signing.Scheme // "" = the source was not reached
	Tenant   string         // as in the path; "" = the path had none
	Source   string
	Client   netip.Addr    // invalid = unknown
	Bytes    int64         // of the body as far as it was read, before expansion
	Spooled  bool          // the body went to a file
	Delayed  time.Duration // over quota: processed this much later
	Took     time.Duration // from the end of the headers to the answer
	Err      error         // what failed with a 5xx; never a secret or part of a body
}

// LookupResult says where a source's configuration came from. It is a closed
// list, for metrics.
type LookupResult uint8

// Lookup results.
const (
	LookupHit     LookupResult = 0 // from the cache
	LookupStale   LookupResult = 1 // from the cache, too old: it is being read again
	LookupUnknown LookupResult = 2 // the cache knows that it does not exist
	LookupFetched LookupResult = 3 // read
	LookupMissing LookupResult = 4 // read: it does not exist
	LookupFailed  LookupResult = 5 // could not be read
	LookupLimited LookupResult = 6 // not read: too many unknown ids are being asked for
)

var lookupNames = [...]string{"hit", "stale", "unknown", "fetched", "missing", "failed", "limited"}

// String returns the metric label.
func (l LookupResult) String() string {
	if int(l) < len(lookupNames) {
		return lookupNames[l]
	}
	return "invalid"
}

// Lookup is one use of the cache, or one call behind it.
type Lookup struct {
	Result LookupResult
	Tenant string
	Source string
	Took   time.Duration // with Fetched, Missing and Failed
	Err    error         // with Failed
}

// ConnRefusal is why a connection was closed at once. It is a closed list, for
// metrics.
type ConnRefusal uint8

// Reasons to close a connection at once.
const (
	ConnClientLimit ConnRefusal = 0 // its address has too many
	ConnQUICLimit   ConnRefusal = 1 // there are too many over QUIC
)

// String returns the metric label.
func (c ConnRefusal) String() string {
	if c == ConnClientLimit {
		return "client_limit"
	}
	return "quic_limit"
}

// CertificateEvent is an attempt to load the certificate.
type CertificateEvent struct {
	NotAfter time.Time // of the one that is served
	Err      error     // the new one could not be loaded; the old one stays
}

// KernelSample is what the kernel says at one moment. The counters cover the
// whole network namespace, other processes included.
type KernelSample struct {
	Counters kernel.Counters
	// Moved is by how much they grew since the sample before.
	Moved kernel.Counters
	// Listeners are the ingress's own sockets.
	Listeners []ListenerSample
}

// ListenerSample is one of the ingress's own sockets.
type ListenerSample struct {
	Network string // "tcp" or "udp"
	Addr    netip.AddrPort
	kernel.Socket
}

func (o *Observer) answered(a Answered) {
	if o.Answered != nil {
		o.Answered(a)
	}
}

func (o *Observer) lookedUp(l Lookup) {
	if o.LookedUp != nil {
		o.LookedUp(l)
	}
}

func (o *Observer) connRefused(c ConnRefusal) {
	if o.ConnRefused != nil {
		o.ConnRefused(c)
	}
}
