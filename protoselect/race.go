package protoselect

import (
	"context"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// link is a connection with what the selector knows about it.
type link struct {
	conn Conn
	h3   bool
	alt  candidate // with h3
}

// race is the staggered start of one delivery: QUIC at once, TCP after the
// stagger or as soon as QUIC has failed. Connections race, requests do not: the
// winner gets the request, the loser runs on to its verdict.
type race struct {
	s       *Selector
	ep      delivery.Endpoint
	plan    plan
	started time.Time

	quic    *leg // nil = no dial in flight or left to take
	alt     candidate
	next    int // candidate to try after this one
	tcp     *leg
	quicErr *delivery.SendError
	tcpErr  *delivery.SendError
	tcpUsed bool    // TCP was started at all
	loser   Verdict // as far as it is known when the race is won
}

// run returns the winner. On an error every leg has been left.
func (r *race) run(ctx context.Context) (link, *delivery.SendError) {
	if !r.tryQUIC() {
		return r.dialTCPAlone(ctx)
	}
	timer := time.NewTimer(r.plan.stagger)
	defer timer.Stop()
	for {
		select {
		case <-done(r.quic):
			if l, ok := r.takeQUIC(); ok {
				return l, nil
			}
			if l, ok := r.tryTCP(ctx); ok {
				return l, nil
			}
		case <-timer.C:
			if l, ok := r.tryTCP(ctx); ok {
				return l, nil
			}
		case <-done(r.tcp):
			if l, ok := r.takeTCP(); ok {
				return l, nil
			}
		case <-ctx.Done():
			r.abandon()
			return link{}, ended(ctx)
		}
		if r.quic == nil && r.tcp == nil && r.tcpUsed {
			return link{}, r.bothFailed()
		}
	}
}

// done is a leg's channel, or nil, which never fires.
func done(l *leg) <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.done
}

// tryQUIC starts or joins a handshake with the next candidate.
func (r *race) tryQUIC() bool {
	for r.next < r.plan.n {
		r.alt = r.plan.alts[r.next]
		r.next++
		if r.quic = r.s.startQUIC(r.ep, r.alt, true); r.quic != nil {
			return true
		}
	}
	return false
}

// takeQUIC handles the verdict of the handshake: the connection, or on to the
// next candidate.
func (r *race) takeQUIC() (link, bool) {
	if l, ok := r.claimQUIC(); ok {
		r.won(l)
		return l, true
	}
	r.tryQUIC()
	return link{}, false
}

// claimQUIC takes the slot on the connection that has come up.
func (r *race) claimQUIC() (link, bool) {
	q := r.quic
	r.quic = nil
	err := q.failure()
	conn := q.take()
	q.leave(false)
	if err != nil {
		r.quicErr = err
		return link{}, false
	}
	return link{conn: conn, h3: true, alt: r.alt}, true
}

// tryTCP lets TCP take part: with a warm connection at once, else by a dial.
func (r *race) tryTCP(ctx context.Context) (link, bool) {
	if r.tcpUsed {
		return link{}, false
	}
	r.tcpUsed = true
	if conn, ok := r.s.dialer.Warm(r.ep, Want{TCP: r.plan.tcp}); ok {
		l := link{conn: conn}
		r.won(l)
		return l, true
	}
	r.tcp = r.s.startTCP(ctx, r.ep, r.plan.tcp)
	return link{}, false
}

// takeTCP handles the end of the TCP dial. A handshake that is complete at the
// same instant goes first.
func (r *race) takeTCP() (link, bool) {
	t := r.tcp
	r.tcp = nil
	r.tcpErr = t.failure()
	conn := t.take()
	t.leave(false)
	if conn == nil {
		return link{}, false
	}
	select {
	case <-done(r.quic):
		if l, ok := r.claimQUIC(); ok {
			conn.Release()
			r.won(l)
			return l, true
		}
	default:
	}
	l := link{conn: conn}
	r.won(l)
	return l, true
}

// won settles the race: the loser is left to its verdict, which the observer
// gets when it is in.
func (r *race) won(l link) {
	result := Race{
		Route: r.ep.Route, Winner: l.conn.Protocol(), Stagger: r.plan.stagger, Took: time.Since(r.started),
	}
	report := func(v Verdict) {
		result.Loser = v
		call(r.s.cfg.Observer.Raced, result)
	}
	r.s.mu.Lock()
	r.s.m.raced(r.ep.Route, r.alt.key, l.h3)
	r.s.unlock()

	loser, loserErr := r.quic, r.quicErr
	if l.h3 {
		loser, loserErr = r.tcp, r.tcpErr
	}
	switch {
	case loser != nil:
		r.loser = loser.watch(report)
		loser.leave(l.h3 && r.s.crowded())
	case loserErr != nil:
		r.loser = verdictOf(loserErr)
		report(r.loser)
	case l.h3 && !r.tcpUsed:
		r.loser = VerdictNotStarted
		report(r.loser)
	default: // it came up at the same instant
		r.loser = VerdictUp
		report(r.loser)
	}
}

// abandon leaves both sides. The handshake runs on to its verdict, which the
// next delivery wants to know; TCP has no other customer.
func (r *race) abandon() {
	if r.quic != nil {
		r.quic.leave(false)
	}
	if r.tcp != nil {
		r.tcp.leave(true)
	}
}

// bothFailed reports the side that every receiver has: TCP.
func (r *race) bothFailed() *delivery.SendError {
	call(r.s.cfg.Observer.Raced, Race{
		Route: r.ep.Route, Loser: verdictOf(r.quicErr), Stagger: r.plan.stagger, Took: time.Since(r.started),
	})
	if r.tcpErr == nil {
		return r.quicErr
	}
	if r.quicErr == nil {
		return r.tcpErr
	}
	err := *r.tcpErr
	err.Detail = joinDetail(err.Detail, "HTTP/3: "+r.quicErr.Detail)
	return &err
}

// dialTCPAlone serves a delivery whose race cannot take place.
func (r *race) dialTCPAlone(ctx context.Context) (link, *delivery.SendError) {
	if l, ok := r.tryWarmTCP(); ok {
		return l, nil
	}
	return r.s.dialTCP(ctx, r.ep, r.plan.tcp)
}

func (r *race) tryWarmTCP() (link, bool) {
	conn, ok := r.s.dialer.Warm(r.ep, Want{TCP: r.plan.tcp})
	return link{conn: conn}, ok
}

// dialTCP dials within the delivery's own context: nobody races it.
func (s *Selector) dialTCP(ctx context.Context, ep delivery.Endpoint, opts TCPOptions) (link, *delivery.SendError) {
	started := time.Now()
	conn, dialErr := s.dialer.DialTCP(ctx, ep, opts)
	err := dialError(ctx, dialErr)
	s.tcpDialed(ep.Route, conn, err, started, false)
	if err != nil {
		return link{}, err
	}
	return link{conn: conn}, nil
}

// dialH3 serves a demand for HTTP/3: the candidates in order, no TCP. It does
// not share its dials: who has nothing to fall back on waits for a stream in
// the transport's queue, in order of arrival.
func (s *Selector) dialH3(ctx context.Context, ep delivery.Endpoint, candidates []candidate) (link, *delivery.SendError) {
	var last *delivery.SendError
	for _, c := range candidates {
		started := time.Now()
		conn, dialErr := s.dialer.DialQUIC(ctx, ep, c.alt)
		err := dialError(ctx, dialErr)
		s.quicDialed(ep.Route, c.key, conn, err, started, false)
		if err == nil {
			return link{conn: conn, h3: true, alt: c}, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return link{}, last
}
