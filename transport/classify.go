package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// classify is the one place where a failure gets its meaning: was it sent, why,
// and what does it say about the protocol.
//
// Three of its rules are worth their own sentence. What is not listed as never
// sent or refused is ambiguous. A refusal counts only where the protocol defines
// it as "not processed": on the stream, or by a GOAWAY id; the same code on the
// connection proves nothing about one request. And nothing is concluded from
// net.ErrClosed, which quic-go's idle timeouts, stateless resets and connection
// closes all unwrap to.
func classify(f failure) *delivery.SendError {
	e := &delivery.SendError{Err: f.err, Detail: detail(f.err)}
	if f.phase == phaseExchange {
		classifyExchange(f, e)
	} else {
		classifyDial(f, e)
	}
	return e
}

func classifyExchange(f failure, e *delivery.SendError) {
	switch {
	case f.unleased:
		*e = *leaseEnded()
	case f.goAway:
		e.Sent, e.Cause, e.Broken = delivery.SentRefused, delivery.CauseGoAway, delivery.BrokenDrain
		e.Detail = "refused by GOAWAY"
	case refusedBy(f, e):
	case f.never:
		e.Sent = delivery.SentNever
		neverSent(f, e)
	default:
		e.Sent = delivery.SentAmbiguous
		ambiguous(f, e)
	}
}

// refusedBy fills e in if the peer said on the request's own stream that it did
// not process it.
func refusedBy(f failure, e *delivery.SendError) bool {
	e.Sent, e.Cause = delivery.SentRefused, delivery.CauseReset
	switch f.proto {
	case delivery.ProtocolHTTP3:
		se, ok := errors.AsType[*quic.StreamError](f.err)
		if !ok || !se.Remote {
			return false
		}
		switch se.ErrorCode {
		case quic.StreamErrorCode(http3.ErrCodeRequestRejected):
			return true
		case quic.StreamErrorCode(http3.ErrCodeVersionFallback):
			e.Broken = delivery.BrokenExplicit
			return true
		}
	case delivery.ProtocolHTTP2:
		if se, ok := asHTTP2StreamError(f.err); ok {
			return se.Code == http2RefusedStream
		}
		if http2GoAwayExcludes(f.err) {
			e.Cause, e.Broken = delivery.CauseGoAway, delivery.BrokenDrain
			return true
		}
	}
	return false
}

func neverSent(f failure, e *delivery.SendError) {
	switch {
	case f.local != nil:
		e.Cause, e.Detail = delivery.CauseLocal, detail(f.local)
	case f.closing:
		e.Cause = delivery.CauseShutdown
	case errors.Is(f.ctxErr, context.DeadlineExceeded):
		e.Cause = delivery.CauseTimeout
		if f.proto != delivery.ProtocolHTTP1 {
			// The stack takes a slot only while the connection is up, so what it
			// waited for is a stream.
			e.Cause, e.Detail = delivery.CauseStreams, "deadline while waiting for a stream"
		}
	case f.ctxErr != nil:
		e.Cause = delivery.CauseShutdown
	case connectionDraining(f.err):
		e.Cause, e.Broken = delivery.CauseGoAway, delivery.BrokenDrain
	case isAlert(f.err):
		e.Cause = delivery.CauseTLS
	default:
		e.Cause = delivery.CauseReset // the connection had ended before the request
	}
}

func ambiguous(f failure, e *delivery.SendError) {
	e.Broken = deathAfterHandshake(f)
	switch {
	case f.local != nil:
		e.Cause, e.Detail, e.Broken = delivery.CauseLocal, detail(f.local), delivery.BrokenNot
	case errors.Is(f.ctxErr, context.DeadlineExceeded):
		e.Cause, e.Detail = delivery.CauseTimeout, "deadline before an answer"
		if f.silent {
			e.Detail = "deadline, and nothing came from the peer since the request"
		}
	case f.ctxErr != nil, f.closing:
		e.Cause, e.Broken = delivery.CauseShutdown, delivery.BrokenNot
	case isAlert(f.err):
		e.Cause = delivery.CauseTLS
	case isProtocolError(f.err):
		e.Cause = delivery.CauseProtocol
	default:
		e.Cause = delivery.CauseReset
	}
}

// isAlert finds a TLS alert of the peer. In TLS 1.3 a client is done before the
// server has looked at its certificate, so a refusal of that arrives after the
// request has left.
func isAlert(err error) bool {
	if te, ok := errors.AsType[*quic.TransportError](err); ok {
		return te.Remote && te.ErrorCode >= cryptoErrorFirst && te.ErrorCode <= cryptoErrorLast
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// deathAfterHandshake says what an ambiguous failure means for an alternative.
func deathAfterHandshake(f failure) delivery.Broken {
	if f.proto != delivery.ProtocolHTTP3 {
		return delivery.BrokenNot
	}
	if f.ctxErr != nil {
		if f.silent && errors.Is(f.ctxErr, context.DeadlineExceeded) {
			return delivery.BrokenAfterDeath
		}
		return delivery.BrokenNot
	}
	if app, ok := errors.AsType[*quic.ApplicationError](f.err); ok {
		switch {
		case !app.Remote, app.ErrorCode == 0, app.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeNoError),
			app.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeRequestRejected):
			return delivery.BrokenNot
		case app.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeVersionFallback):
			return delivery.BrokenExplicit
		}
		return delivery.BrokenAfterDeath
	}
	if te, ok := errors.AsType[*quic.TransportError](f.err); ok && !isSystemError(te) {
		return delivery.BrokenAfterDeath
	}
	if isType[*quic.IdleTimeoutError](f.err) || isType[*quic.StatelessResetError](f.err) {
		return delivery.BrokenAfterDeath
	}
	return delivery.BrokenNot
}

// isSystemError finds what quic-go makes of a failed system call: an internal
// error of our own, of which only the text is left.
func isSystemError(te *quic.TransportError) bool {
	return !te.Remote && te.ErrorCode == quic.InternalError
}

// fate says what the verdict means for the connection.
func (f failure) fate(e *delivery.SendError) fate {
	if f.proto == delivery.ProtocolHTTP1 {
		// Between two requests there is nothing that could tell a leftover of
		// the first from the answer to the second.
		if e.Sent == delivery.SentNever && (e.Cause == delivery.CauseLocal || e.Cause == delivery.CauseStreams) {
			return keepLink
		}
		return dropLink
	}
	// A connection that carries other requests is never cut because of one: if
	// it is dead, they find out by themselves; if it only takes no more, they
	// still get their answers.
	switch {
	case f.local != nil:
		return keepLink
	case e.Broken == delivery.BrokenDrain, e.Broken == delivery.BrokenExplicit,
		e.Broken == delivery.BrokenAfterDeath, f.silent, connectionEnded(f.err):
		return drainLink
	}
	return keepLink
}

func classifyDial(f failure, e *delivery.SendError) {
	e.Sent = delivery.SentNever
	if denied, ok := errors.AsType[*netguard.DeniedError](f.err); ok {
		e.Cause = delivery.CausePolicy
		if denied.Literal {
			e.Cause = delivery.CausePolicyLiteral
		}
		return
	}
	if cause := localShortage(f.err); cause != delivery.CauseNone {
		e.Cause = cause
		if cause == delivery.CausePorts {
			e.Detail = "port_exhausted: " + e.Detail
		}
		return
	}
	switch f.phase {
	case phaseResolve:
		e.Cause = delivery.CauseDNS
	case phaseProxy:
		e.Cause = delivery.CauseProxy
	case phaseTLS:
		e.Cause = delivery.CauseTLS
		if isNetworkError(f.err) {
			e.Cause = delivery.CauseConnect
		}
	case phaseQUIC:
		classifyQUICDial(f.err, e)
	default:
		e.Cause = delivery.CauseConnect
	}
}

// TLS alerts that say "I cannot accept this certificate" (RFC 8446 section 6.2).
const (
	alertBadCertificate  = 42
	alertCertificateLast = 48 // unknown_ca
	cryptoErrorFirst     = quic.TransportErrorCode(0x100)
	cryptoErrorLast      = quic.TransportErrorCode(0x1ff)
)

func classifyQUICDial(err error, e *delivery.SendError) {
	e.Cause = delivery.CauseConnect
	switch te, isTransport := errors.AsType[*quic.TransportError](err); {
	case errors.Is(err, errUnproven):
		e.Broken = delivery.BrokenAfterDeath
	case isCertificateError(err):
		e.Cause, e.Broken = delivery.CauseTLS, delivery.BrokenCertificate
	case isTransport && te.ErrorCode >= cryptoErrorFirst && te.ErrorCode <= cryptoErrorLast:
		alert := te.ErrorCode - cryptoErrorFirst
		e.Cause, e.Broken = delivery.CauseTLS, delivery.BrokenExplicit
		if !te.Remote && alert >= alertBadCertificate && alert <= alertCertificateLast {
			e.Broken = delivery.BrokenCertificate
		}
	case isTransport && !isSystemError(te), isType[*quic.VersionNegotiationError](err), isType[*quic.ApplicationError](err):
		e.Broken = delivery.BrokenExplicit
	case isType[*quic.IdleTimeoutError](err), isType[*quic.HandshakeTimeoutError](err):
		e.Broken = delivery.BrokenTimeout
	default:
		// A system call failed: no route, a datagram too long for the path, a
		// firewall of our own. It says nothing about the alternative.
		e.Broken = delivery.BrokenNot
	}
}

// localShortage finds what this machine has run out of.
func localShortage(err error) delivery.Cause {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EADDRINUSE):
		// From bind, the first is a source address that this machine has not got;
		// from connect, and the second from both, there is no port left.
		if call, ok := errors.AsType[*os.SyscallError](err); ok && call.Syscall == "bind" && errors.Is(call, syscall.EADDRNOTAVAIL) {
			return delivery.CauseLocal
		}
		return delivery.CausePorts
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
		errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM), isType[*materialError](err):
		return delivery.CauseLocal
	}
	return delivery.CauseNone
}

func isCertificateError(err error) bool {
	return isType[*tls.CertificateVerificationError](err) || isType[x509.HostnameError](err) ||
		isType[x509.UnknownAuthorityError](err) || isType[x509.CertificateInvalidError](err)
}

// isNetworkError tells a connection that broke during the TLS handshake from a
// handshake that failed. A remote alert comes as a *net.OpError as well.
func isNetworkError(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
		isType[syscall.Errno](err) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// connectionDraining finds a connection that stopped taking requests in an
// orderly way.
func connectionDraining(err error) bool {
	return err != nil && strings.Contains(err.Error(), "graceful shutdown")
}

// connectionEnded finds an error that is about the whole connection. It is
// called with errors of HTTP/2 and HTTP/3 only.
func connectionEnded(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, ok := asHTTP2StreamError(err); ok || isType[*quic.StreamError](err) {
		return false
	}
	return !errors.Is(err, errTooMany1xx) && !strings.HasPrefix(err.Error(), "http3: ") ||
		strings.HasPrefix(err.Error(), "http3: conn unusable")
}

// isProtocolError finds a peer that broke the rules rather than the connection.
func isProtocolError(err error) bool {
	switch {
	case err == nil, isType[*quic.StreamError](err), isType[*quic.ApplicationError](err), isType[*quic.TransportError](err),
		isType[*quic.IdleTimeoutError](err), isType[*quic.StatelessResetError](err):
		return false
	case errors.Is(err, errTooMany1xx):
		return true
	}
	if se, ok := asHTTP2StreamError(err); ok {
		return se.Cause == nil || se.Cause.Error() != http2FromPeer // ours, about what the peer sent
	}
	text := err.Error()
	if strings.HasPrefix(text, "http3: ") || strings.HasPrefix(text, "connection error: ") {
		return true // what is left of the stacks' own errors is about frames and headers
	}
	if isNetworkError(err) {
		return false
	}
	for _, sign := range []string{"malformed", "invalid", "exceeded", "too large", "too many"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
