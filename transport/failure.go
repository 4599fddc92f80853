package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// phase is how far a connection or a request had come.
type phase uint8

const (
	phaseResolve  phase = iota // lookup and address policy
	phaseConnect               // TCP connect, UDP socket
	phaseProxy                 // CONNECT
	phaseTLS                   // TLS over TCP, ALPN
	phaseQUIC                  // QUIC handshake, TLS included
	phaseExchange              // a request on a live connection
)

// failure is everything that the classifier may look at. It is filled in where
// things fail and judged in one place.
type failure struct {
	phase phase
	proto delivery.Protocol
	err   error // as the stack gave it

	// Of an exchange.
	never    bool  // no byte left, and none will
	unleased bool  // Valid said no at the last moment
	goAway   bool  // a GOAWAY proves that it was not processed
	silent   bool  // nothing came from the peer since the request was written
	closing  bool  // the transport is being closed
	ctxErr   error // of the caller's context
	local    error // our side's: an invalid request, an unreadable body
}

// complete adds what is known about the exchange once the stack has returned.
// seal comes first: after it, the answer to "was it sent?" cannot change.
func (f *failure) complete(ctx context.Context, l *link, ex *exchange) {
	f.phase, f.proto = phaseExchange, l.proto
	f.never = ex.seal()
	f.unleased = ex.unleased.Load()
	f.goAway = ex.refused.Load()
	f.ctxErr = ctx.Err()
	f.closing = l.pool.closing.Load()
	f.local = cmp.Or(f.local, ex.body.failure())
	if f.never && f.local == nil && f.ctxErr == nil {
		f.local = invalidRequest(ex.req)
	}
}

// gaveUp is the caller's context ending while nothing of the request had left.
func gaveUp(ctxErr error, when string) *delivery.SendError {
	e := &delivery.SendError{Sent: delivery.SentNever, Err: ctxErr}
	if errors.Is(ctxErr, context.DeadlineExceeded) {
		e.Cause, e.Detail = delivery.CauseTimeout, "deadline "+when
	} else {
		e.Cause, e.Detail = delivery.CauseShutdown, "canceled "+when
	}
	return e
}

// gaveUpWaiting is the same while every connection was busy.
func gaveUpWaiting(ctxErr error, limit int) *delivery.SendError {
	e := gaveUp(ctxErr, "while all connections of the route were busy")
	if e.Cause == delivery.CauseTimeout {
		e.Cause = delivery.CauseStreams
		e.Detail = fmt.Sprintf("deadline while all %d connections of the route were busy", limit)
	}
	return e
}

func leaseEnded() *delivery.SendError {
	return &delivery.SendError{
		Sent: delivery.SentNever, Cause: delivery.CauseShutdown, Detail: "the lease ended before the first byte",
	}
}

func errClosed() *delivery.SendError {
	return &delivery.SendError{
		Sent: delivery.SentNever, Cause: delivery.CauseShutdown, Detail: "the transport is closed",
	}
}

// errDiedEarly is a connection that ended before it could be used. A peer that
// does not accept our certificate, or misses one, says so at that moment: in TLS
// 1.3 the handshake is complete for us before the peer has looked.
func errDiedEarly(quic bool, why error) *delivery.SendError {
	e := &delivery.SendError{
		Sent: delivery.SentNever, Cause: delivery.CauseConnect, Detail: "the connection ended right after its handshake",
	}
	if isAlert(why) {
		e.Cause, e.Detail, e.Err = delivery.CauseTLS, e.Detail+": "+detail(why), why
	}
	if quic {
		e.Broken = delivery.BrokenAfterDeath
	}
	return e
}

// maxDetail bounds an operator's line; a part of it may come from the peer.
const maxDetail = 240

// detail makes one printable line of an error. Peers put text into GOAWAY and
// CONNECTION_CLOSE frames; it must not break a log or a terminal.
func detail(err error) string {
	if err == nil {
		return ""
	}
	s := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(err.Error(), "?"))
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
