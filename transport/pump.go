package transport

import (
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// pumpLocked gives free slots to those who wait, oldest first, and dials for the
// rest as far as the cap allows.
func (p *pool) pumpLocked(b *bucket) {
	p.serveLocked(b)
	if p.closed {
		return
	}
	for {
		w := b.uncovered()
		if w == nil || !p.roomLocked(b, w.opts) {
			return
		}
		p.startDialLocked(b, dialOptions{protocol: w.opts.Protocol, proof: w.proof})
	}
}

// serveLocked gives free slots to those who wait, oldest first. It stops when no
// connection has room for anybody: with hundreds who wait, a slot that comes free
// must not cost a look at each of them.
func (p *pool) serveLocked(b *bucket) {
	kept, i := 0, 0
	for ; i < len(b.waiters); i++ {
		w := b.waiters[i]
		l := p.freeLocked(b, w.opts)
		if l == nil {
			if !b.hasRoom(p.round) {
				break
			}
			b.waiters[kept] = w
			kept++
			continue
		}
		p.waitingLocked(-1)
		w.result <- acquired{conn: p.takeLocked(l, l.uses > 0)}
	}
	b.served(kept, i)
}

// hasRoom reports whether a connection may take another request, after the search
// of a round.
func (b *bucket) hasRoom(round uint64) bool {
	for _, l := range b.links {
		if l.state == linkLive && l.inflight < l.limit && l.tried != round {
			return true
		}
	}
	return false
}

// served takes the waiters from kept to end out of the list. Where only its head
// goes, the rest stays in place.
func (b *bucket) served(kept, end int) {
	if kept > 0 {
		b.waiters = slices.Delete(b.waiters, kept, end)
		return
	}
	clear(b.waiters[:end])
	b.waiters = b.waiters[end:]
}

// freeLocked reserves a slot on the connection that suits best. Connections that
// turn out to be useless are evicted on the way.
func (p *pool) freeLocked(b *bucket, opts TCPOptions) *link {
	p.round++
	for {
		l := b.best(opts, p.round)
		switch {
		case l == nil:
			return nil
		case l.keepAlive > 0 && l.idle && time.Since(l.idleSince) >= l.keepAlive:
			p.evictLocked(l, EvictIdle) // the peer is about to close it
		case l.wire.reserve():
			return l
		case l.inflight == 0:
			// Nothing of ours is on it, and still it takes nothing: closed, or
			// told to go away.
			p.evictLocked(l, EvictClosed)
		default:
			l.tried = p.round // the peer's limit is below ours
		}
	}
}

// best returns the connection to try next: HTTP/2 before HTTP/1.1; of several
// over HTTP/2 or HTTP/3 the oldest with room, of those over HTTP/1.1 the one used
// last, so that what is too many falls idle.
func (b *bucket) best(opts TCPOptions, round uint64) *link {
	var best *link
	for _, l := range b.links {
		if l.state != linkLive || l.inflight >= l.limit || l.tried == round || !opts.accepts(l) {
			continue
		}
		switch {
		case l.proto != delivery.ProtocolHTTP1:
			return l
		case best == nil || l.idleSince.After(best.idleSince):
			best = l
		}
	}
	return best
}

// accepts reports whether a link is what was asked for.
func (o TCPOptions) accepts(l *link) bool {
	if o.Protocol != delivery.ProtocolNone && o.Protocol != l.proto {
		return false
	}
	return !o.Fresh || l.uses == 0
}

// uncovered returns the first waiter that no dial in flight is for.
func (b *bucket) uncovered() *waiter {
	spans := make([]int, len(b.dials))
	for i, d := range b.dials {
		spans[i] = d.span
	}
next:
	for _, w := range b.waiters {
		for i, d := range b.dials {
			if spans[i] > 0 && d.protocol == w.opts.Protocol {
				spans[i]--
				continue next
			}
		}
		return w
	}
	return nil
}

// roomLocked reports whether one more connection may be dialled. An idle one
// that the waiter cannot use gives way.
func (p *pool) roomLocked(b *bucket, opts TCPOptions) bool {
	limit := p.capOf(b.key)
	if len(b.links)+len(b.dials) < limit {
		return true
	}
	for _, l := range b.links {
		if l.idle && !opts.accepts(l) {
			p.evictLocked(l, EvictCapacity)
			return len(b.links)+len(b.dials) < limit
		}
	}
	return false
}

// span is for how many waiters one dial is. One HTTP/2 or HTTP/3 connection
// carries many requests, one over HTTP/1.1 a single one. As long as it is not
// known which of both a route speaks, one dial is for all: it costs HTTP/1.1 a
// handshake's time at the first burst, and saves HTTP/2 a storm of handshakes.
func (p *pool) span(b *bucket, protocol delivery.Protocol) int {
	switch {
	case b.key.quic:
		return p.cfg.MaxStreamsHTTP3
	case protocol == delivery.ProtocolHTTP1, b.key.route.Origin.Scheme == "http":
		return 1
	case b.known && !b.multiplexed:
		return 1
	default:
		return p.cfg.MaxStreamsHTTP2
	}
}

func (p *pool) startDialLocked(b *bucket, opts dialOptions) {
	d := &dial{protocol: opts.protocol, span: p.span(b, opts.protocol), since: p.arrivals, generation: p.generation}
	b.dials = append(b.dials, d)
	p.stats.Dialing++
	key, ep, alt := b.key, b.ep, b.alt
	p.background(func() {
		started := time.Now()
		l, err := p.dialer(p.dialCtx, key, ep, alt, opts)
		p.report(key, l, err, time.Since(started))
		p.dialled(b, d, l, err)
	})
}

func (p *pool) report(key bucketKey, l *link, err *delivery.SendError, took time.Duration) {
	e := HandshakeEvent{Route: key.route, Took: took}
	switch {
	case err == nil:
		e.Protocol, e.Resumed = l.proto, l.resumed
	case key.quic:
		e.Protocol = delivery.ProtocolHTTP3
		fallthrough
	default:
		e.Cause, e.Broken = err.Cause, err.Broken
	}
	p.cfg.Observer.handshake(e)
}

// dialled puts a new connection to use, or hands the error to those the dial
// was for.
func (p *pool) dialled(b *bucket, d *dial, l *link, err *delivery.SendError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.dials = slices.DeleteFunc(b.dials, func(other *dial) bool { return other == d })
	p.stats.Dialing--
	if err == nil {
		p.addLocked(b, d, l)
		if d.generation != p.generation { // judged by what does not hold any more
			p.evictLocked(l, EvictDrained)
		}
		p.serveLocked(b)
		if l.state == linkGone && l.uses == 0 && d.generation == p.generation {
			// A peer that ends connections right after the handshake is not to
			// be dialled in a circle until the deadline.
			err = errDiedEarly(b.key.quic, l.wire.ended())
		}
	}
	if err != nil {
		p.failLocked(b, d, err)
	}
	p.pumpLocked(b)
	if l != nil && l.state == linkLive && l.inflight == 0 {
		p.listOf(l).pushLocked(l)
	}
	p.forgetLocked(b)
}

// failLocked hands a dial's error to the waiters that the dial was for. Those
// who came later have not seen their dial fail yet.
func (p *pool) failLocked(b *bucket, d *dial, err *delivery.SendError) {
	left := d.span
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool {
		if left == 0 || w.since > d.since || w.opts.Protocol != d.protocol {
			return false
		}
		left--
		p.waitingLocked(-1)
		own := *err
		w.result <- acquired{err: &own}
		return true
	})
}

func (p *pool) addLocked(b *bucket, d *dial, l *link) {
	l.bucket = b
	if l.state == linkGone { // it died before it was added
		p.background(l.wire.close)
		return
	}
	b.links = append(b.links, l)
	p.gauge(l.proto).Live++
	if d.protocol == delivery.ProtocolNone { // ALPN had the choice
		b.known, b.multiplexed = true, l.proto != delivery.ProtocolHTTP1
	}
	if p.closed {
		p.evictLocked(l, EvictShutdown)
	}
}
