package protoselect

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// startQUIC starts a handshake with the alternative, whose verdict the memory
// gets, or queues behind the one in flight: a burst needs several connections, and
// the dialer opens as many at once as those who queue will fill. wait says that
// the caller will take the connection and must call leave. It returns nil when the
// selector has stopped or too many dials are in flight.
func (s *Selector) startQUIC(ep delivery.Endpoint, c candidate, wait bool) *leg {
	key := legKey{ep.Route, c.key}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.legs[key]; l != nil {
		if wait {
			return s.queueLocked(ep, c)
		}
		return l
	}
	if s.stopped || s.dials >= s.cfg.MaxDials {
		return nil
	}
	s.dials++
	ctx, cancel := context.WithTimeout(s.base, s.cfg.DialTimeout)
	l := newLeg(key, cancel)
	l.wanted = wait
	s.legs[key] = l
	s.wg.Go(func() {
		defer cancel()
		s.runQUIC(ctx, l, ep, c)
	})
	return l
}

func (s *Selector) runQUIC(ctx context.Context, l *leg, ep delivery.Endpoint, c candidate) {
	conn, dialErr := s.dialCandidate(ctx, ep, c)
	err := dialError(ctx, dialErr)
	if err != nil && err.Cause == delivery.CauseTimeout && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		// Neither up nor failed within any reasonable time: that is silence.
		err.Broken = delivery.BrokenTimeout
	}
	background := l.idle()
	s.mu.Lock()
	delete(s.legs, l.key)
	s.dials--
	s.mu.Unlock()
	s.quicDialed(ep.Route, c.key, conn, err, l.started, background)
	l.finish(conn, err, verdictOf(err))
}

// dialCandidate asks for a proof of what has not answered since its last trouble.
func (s *Selector) dialCandidate(ctx context.Context, ep delivery.Endpoint, c candidate) (Conn, error) {
	if c.proven {
		return s.dialer.DialQUIC(ctx, ep, c.alt)
	}
	return s.dialer.ProveQUIC(ctx, ep, c.alt)
}

// queueLocked stands in the dialer's queue for a stream to the alternative, for one
// delivery: one that comes free or a further connection, within the dialer's cap,
// whichever is first. It ends when the delivery has got a connection elsewhere. It
// returns nil when the selector has stopped.
func (s *Selector) queueLocked(ep delivery.Endpoint, c candidate) *leg {
	if s.stopped {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.base, s.cfg.DialTimeout)
	l := newLeg(legKey{ep.Route, c.key}, cancel)
	l.wanted, l.queued = true, true
	s.wg.Go(func() {
		defer cancel()
		conn, dialErr := s.dialCandidate(ctx, ep, c)
		err := dialError(ctx, dialErr)
		if err == nil {
			// A failure is no news: a hundred who queue would tell it a hundred
			// times, and the handshake that they queue behind tells it once.
			s.quicDialed(ep.Route, c.key, conn, nil, l.started, l.idle())
		}
		l.finish(conn, err, verdictOf(err))
	})
	return l
}

// quicDialed takes the end of a dial over QUIC into the memory.
func (s *Selector) quicDialed(r delivery.Route, k altKey, conn Conn, err *delivery.SendError, started time.Time, background bool) {
	now := time.Now()
	switch {
	case err == nil:
		if !conn.Reused() {
			rtt := cmp.Or(conn.RTT(), conn.Handshake().QUIC)
			s.mu.Lock()
			s.m.quicUp(now, r, k, rtt)
			s.unlock()
		}
	case err.Cause == delivery.CauseStreams, err.Cause == delivery.CauseShutdown:
		// All its connections are busy, or we gave up: no news about HTTP/3.
	default:
		s.mu.Lock()
		s.m.quicFailed(now, r, k, err.Broken, err.Detail)
		s.unlock()
	}
	call(s.cfg.Observer.Dialed, Dial{
		Route: r, QUIC: true, Background: background, Verdict: verdictOf(err), Took: now.Sub(started), Err: plain(err),
	})
}

// startTCP starts a dial over TCP that can lose a race and still come up. It
// keeps the delivery's values but not its end: the race decides about that.
func (s *Selector) startTCP(ctx context.Context, ep delivery.Endpoint, opts TCPOptions) *leg {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DialTimeout)
	stop := context.AfterFunc(s.base, cancel)
	l := newLeg(legKey{route: ep.Route}, cancel)
	l.wanted = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		cancel()
		err := stoppedError()
		l.finish(nil, err, verdictOf(err))
		return l
	}
	s.dials++
	s.wg.Go(func() {
		defer cancel()
		defer stop()
		conn, dialErr := s.dialer.DialTCP(ctx, ep, opts)
		err := dialError(ctx, dialErr)
		background := l.idle()
		s.mu.Lock()
		s.dials--
		s.unlock()
		s.tcpDialed(ep.Route, conn, err, l.started, background)
		l.finish(conn, err, verdictOf(err))
	})
	return l
}

// crowded reports whether more dials are in flight than the bound allows.
func (s *Selector) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials > s.cfg.MaxDials
}

// tcpDialed takes the end of a dial over TCP into the memory.
func (s *Selector) tcpDialed(r delivery.Route, conn Conn, err *delivery.SendError, started time.Time, background bool) {
	now := time.Now()
	if err == nil && !conn.Reused() {
		rtt := cmp.Or(conn.RTT(), conn.Handshake().Connect)
		s.mu.Lock()
		s.m.tcpUp(now, r, rtt)
		s.unlock()
	}
	call(s.cfg.Observer.Dialed, Dial{
		Route: r, Background: background, Verdict: verdictOf(err), Took: now.Sub(started), Err: plain(err),
	})
}

// dialError makes a *SendError of whatever a dial returned. A dial writes no
// request, so an error of unknown kind still means "never sent".
func dialError(ctx context.Context, err error) *delivery.SendError {
	if err == nil {
		return nil
	}
	if se, ok := errors.AsType[*delivery.SendError](err); ok {
		return se
	}
	se := &delivery.SendError{Sent: delivery.SentNever, Cause: delivery.CauseConnect, Detail: "no connection", Err: err}
	if ctx.Err() != nil {
		se.Cause = contextCause(ctx)
	}
	return se
}

// ended is the error of a delivery whose context ended before it had a
// connection.
func ended(ctx context.Context) *delivery.SendError {
	return &delivery.SendError{
		Sent: delivery.SentNever, Cause: contextCause(ctx), Detail: "no connection in time", Err: context.Cause(ctx),
	}
}

// contextCause tells a deadline of ours from a stop of ours.
func contextCause(ctx context.Context) delivery.Cause {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return delivery.CauseTimeout
	}
	return delivery.CauseShutdown
}

// plain avoids a typed nil in an error.
func plain(err *delivery.SendError) error {
	if err == nil {
		return nil
	}
	return err
}
