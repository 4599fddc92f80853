package transport

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Conn is one slot on a live connection: a stream of HTTP/2 or HTTP/3, or the
// whole of an HTTP/1.1 connection. Its holder calls RoundTrip once or Release,
// never both; either gives the slot back.
type Conn struct {
	link   *link
	used   atomic.Bool
	reused bool
}

var _ delivery.RoundTripper = (*Conn)(nil)

// Protocol is what the connection speaks.
func (c *Conn) Protocol() delivery.Protocol { return c.link.proto }

// Reused reports whether another slot on the connection was handed out before:
// its handshake is no news. Of several callers who waited for one handshake, the
// first gets the news.
func (c *Conn) Reused() bool { return c.reused }

// Handshake tells how the connection came up. On a reused connection only the
// remote address is set, since nothing else happened for this request.
func (c *Conn) Handshake() delivery.Handshake {
	if c.reused {
		return delivery.Handshake{Remote: c.link.hs.Remote}
	}
	return c.link.hs
}

// RTT is the connection's smoothed round-trip time; over TCP, how long the
// connect took. 0 = unknown.
func (c *Conn) RTT() time.Duration { return c.link.wire.rtt() }

// Release gives an unused slot back and leaves the connection warm. It has no
// effect after RoundTrip or a second time.
func (c *Conn) Release() {
	if c.used.CompareAndSwap(false, true) {
		c.link.wire.unreserve()
		c.link.pool.release(c.link, keepLink)
	}
}

// RoundTrip writes the request once and reads its answer: its headers and an
// excerpt of its body. ctx bounds everything. The error is a
// *delivery.SendError; with an answer whose headers were seen it is nil,
// whatever became of the body.
func (c *Conn) RoundTrip(ctx context.Context, req *delivery.Request) (*delivery.Response, error) {
	if !c.used.CompareAndSwap(false, true) {
		return nil, &delivery.SendError{
			Sent: delivery.SentNever, Cause: delivery.CauseLocal, Detail: "the slot has been used or given back",
		}
	}
	resp, fate, err := c.link.exchange(ctx, req)
	c.link.pool.release(c.link, fate)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// fate is what an exchange means for its connection.
type fate uint8

const (
	keepLink  fate = iota // it can carry the next request
	drainLink             // no new requests; what is in flight goes on
	dropLink              // useless: closed as soon as nothing is in flight on it
)

// wire is a connection as one protocol stack sees it. reserve, unreserve and
// ended are called under the pool's lock and must not take it.
type wire interface {
	// reserve takes a slot from the stack's own accounting.
	reserve() bool
	unreserve()
	// roundTrip writes ex once, which uses the reservation up. The returned
	// failure is set when there is no answer.
	roundTrip(ctx context.Context, ex *exchange) (*answer, *failure)
	// close ends the connection and everything on it. Idempotent.
	close()
	// ended says why the connection has ended, if it is known; it must have.
	ended() error
	rtt() time.Duration
}

// linkState is a connection's life: live, then draining, then gone. It is
// guarded by the pool's lock.
type linkState uint8

const (
	linkLive linkState = iota
	linkDraining
	linkGone
)

// link is one live connection.
type link struct {
	pool  *pool
	wire  wire
	proto delivery.Protocol
	hs    delivery.Handshake
	alt   delivery.Alternative // HTTP/3 only
	route delivery.Route
	// resumed: the handshake resumed a TLS session.
	resumed bool
	// dead is set once the pool has let go of it.
	dead atomic.Bool
	// names are made at the first request and stay as they are.
	names atomic.Pointer[linkNames]

	// The rest is guarded by pool.mu.
	bucket    *bucket
	state     linkState
	why       Eviction // of a draining link
	limit     int      // slots
	inflight  int
	uses      uint64
	tried     uint64 // the round in which it had no slot
	idleSince time.Time
	// keepAlive is the peer's own idle timeout, 0 = not told.
	keepAlive  time.Duration
	prev, next *link // in its idle list
	idle       bool
}
