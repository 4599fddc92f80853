package transport

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Eviction is why a connection left the pool. It is a closed list, for metrics.
type Eviction uint8

// Reasons of an eviction.
const (
	EvictClosed   Eviction = 0 // the peer or the path ended it
	EvictIdle     Eviction = 1 // idle for too long
	EvictCapacity Eviction = 2 // too many idle ones, or its slot was needed
	EvictFailed   Eviction = 3 // a request on it failed in a way that condemns it
	EvictDrained  Eviction = 4 // GOAWAY, graceful shutdown, end of its stream ids
	EvictStalled  Eviction = 5 // no packet after a request
	EvictShutdown Eviction = 6 // Close
)

var evictionNames = [...]string{"closed", "idle", "capacity", "failed", "drained", "stalled", "shutdown"}

// String returns the metric label.
func (e Eviction) String() string {
	if int(e) < len(evictionNames) {
		return evictionNames[e]
	}
	return "invalid"
}

// HandshakeEvent is the end of one dial.
type HandshakeEvent struct {
	// Protocol is what came up; for a failed dial HTTP/3 or, for TCP,
	// delivery.ProtocolNone.
	Protocol delivery.Protocol
	Route    delivery.Route
	// Cause and Broken are zero when it came up.
	Cause  delivery.Cause
	Broken delivery.Broken
	Took   time.Duration
	// Resumed: the TLS session was.
	Resumed bool
}

// Observer receives events. A nil func is not called. The funcs are called
// synchronously, from many goroutines, and must not block or call back into
// the transport. Gauges are read with [Transport.Stats].
type Observer struct {
	// Handshake is called once for each dial, whoever still waits for it.
	Handshake func(HandshakeEvent)
	// Evicted is called once for each connection that leaves the pool.
	Evicted func(delivery.Protocol, Eviction)
	// Stalled is called when no packet came for three probe timeouts after a
	// request had been written to an alternative: its path is suspect.
	Stalled func(delivery.Route, delivery.Alternative)
	// Refused is called when a peer refused a request without processing it.
	Refused func(delivery.Route, delivery.Protocol)
}

func (o Observer) handshake(e HandshakeEvent) {
	if o.Handshake != nil {
		o.Handshake(e)
	}
}

func (o Observer) evicted(p delivery.Protocol, why Eviction) {
	if o.Evicted != nil {
		o.Evicted(p, why)
	}
}

func (o Observer) stalled(r delivery.Route, alt delivery.Alternative) {
	if o.Stalled != nil {
		o.Stalled(r, alt)
	}
}

func (o Observer) refused(r delivery.Route, p delivery.Protocol) {
	if o.Refused != nil {
		o.Refused(r, p)
	}
}

// Gauge counts connections of one protocol.
type Gauge struct {
	Live int // idle ones included
	Idle int
}

// Stats is a snapshot for gauges.
type Stats struct {
	HTTP1, HTTP2, HTTP3 Gauge
	Dialing             int // dials in flight
	Waiting             int // callers who wait for a slot
	InFlight            int // slots taken
	Sockets             int // UDP sockets
}
