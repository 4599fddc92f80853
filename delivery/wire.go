package delivery

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// Origin is scheme, host and port of a URL (RFC 6454). Host is lower-case
// ASCII without a trailing dot; IPv6 literals have no brackets.
type Origin struct {
	Scheme string
	Host   string
	Port   uint16
}

// Authority returns "host:port" with brackets around IPv6 literals.
func (o Origin) Authority() string {
	return net.JoinHostPort(o.Host, strconv.Itoa(int(o.Port)))
}

// String returns "scheme://host:port".
func (o Origin) String() string { return o.Scheme + "://" + o.Authority() }

// Identity is a fingerprint of TLS material (CA, client certificate). The zero
// value means system roots and no client certificate.
type Identity [16]byte

// Route keys protocol memory, pools and TLS sessions: origin AND TLS identity
// AND egress, so that nothing bleeds between tenants. It is comparable.
type Route struct {
	Origin   Origin
	Identity Identity
	Egress   string // name of the egress (proxy or source address); "" = default
}

// Endpoint is where a request goes: a route with the material behind its
// identity.
type Endpoint struct {
	Route Route
	TLS   *TLSMaterial // nil with a zero Identity
}

// Alternative is an HTTP/3 alternative of an origin (RFC 7838, RFC 9460): the
// host and UDP port to dial. Certificates are verified for the origin's name.
type Alternative struct {
	Host string // "" = the origin's own
	Port uint16
	// Hints are addresses of an HTTPS record, used only until real answers come.
	Hints []netip.Addr
}

// Request is one POST, ready to be written. It is written at most once, unless
// the first write was proven not to have been processed.
type Request struct {
	Path string // origin-form target: path and query
	Host string // authority as in the subscriber's URL
	// Headers have canonical names and are sent in this order. Nobody writes to
	// them any more: a resend on another connection may overlap with a stack that
	// still reads them.
	Headers []Header
	Body    []byte // nil when Open is set
	// Open opens a large body for streaming; it may be called again for a resend.
	Open    func() (io.ReadCloser, error)
	Length  int64 // bytes of the body
	AltUsed string
	// Valid is asked immediately before the first byte leaves: false aborts the
	// request as never sent. Nil = always valid.
	Valid func() bool
}

// HeaderValue returns the first value of a header, "" = none. name is canonical.
func (r *Request) HeaderValue(name string) string {
	for i := range r.Headers {
		if r.Headers[i].Name == name {
			return r.Headers[i].Value
		}
	}
	return ""
}

// Response is an answer whose headers were seen.
type Response struct {
	Status    int
	Header    http.Header // capped in size
	Body      []byte      // excerpt, at most 16 KiB
	Truncated bool
	BodyErr   error // the body broke off; the outcome was decided at the headers
	FirstByte time.Duration
	BytesSent int64
}

// SendError is a request without response headers.
type SendError struct {
	Sent   Sent
	Cause  Cause
	Detail string // for the operator: no secrets, no path
	Err    error  // underlying, for errors.As inside transport only
	// Broken names the class of protocol brokenness for the selector.
	Broken Broken
}

// Error implements error.
func (e *SendError) Error() string {
	return "send: " + e.Cause.String() + " (" + e.Sent.String() + "): " + e.Detail
}

// Unwrap returns the underlying error.
func (e *SendError) Unwrap() error { return e.Err }

// Broken is what a failure over HTTP/3 says about that alternative.
type Broken uint8

// Classes of brokenness; the selector's backoff depends on them.
const (
	BrokenNot         Broken = 0 // says nothing about the protocol: keep
	BrokenTimeout     Broken = 1 // silence: black hole or closed port
	BrokenExplicit    Broken = 2 // refused: ALPN, version, H3_VERSION_FALLBACK
	BrokenCertificate Broken = 3 // the alternative cannot speak for the origin
	BrokenAfterDeath  Broken = 4 // the connection died after its handshake
	BrokenMisdirected Broken = 5 // 421: forget the alternative
	BrokenDrain       Broken = 6 // GOAWAY: drain the connection, nothing is wrong
)

var brokenNames = [...]string{"none", "timeout", "explicit", "certificate", "death_after_handshake", "misdirected", "drain"}

// String returns the wire name.
func (b Broken) String() string {
	if int(b) < len(brokenNames) {
		return brokenNames[b]
	}
	return "invalid"
}

// Handshake is how a connection came up.
type Handshake struct {
	DNS     time.Duration
	Connect time.Duration
	TLS     time.Duration
	QUIC    time.Duration
	Remote  string // address and port
}

// RoundTripper is one live connection that can carry a request.
type RoundTripper interface {
	// RoundTrip writes the request once and reads its answer. Its error is a
	// *SendError. ctx bounds everything, the body included.
	RoundTrip(ctx context.Context, req *Request) (*Response, error)
	// Protocol is what the connection speaks.
	Protocol() Protocol
	// Handshake tells how the connection came up, for the first request on it.
	Handshake() Handshake
}
