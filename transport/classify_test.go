package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// TestClassifierKnowsEachRow holds the rows that no peer can be made to produce
// at will, and the order of precedence between facts.
func TestClassifierKnowsEachRow(t *testing.T) {
	const h1, h2, h3 = delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3
	deadline, canceled := context.DeadlineExceeded, context.Canceled
	conn := errors.New("http3: conn unusable: connection in graceful shutdown")
	cases := []struct {
		name   string
		f      failure
		sent   delivery.Sent
		cause  delivery.Cause
		broken delivery.Broken
	}{
		// A connection that died unwraps to net.ErrClosed in four ways, and
		// they mean different things.
		{"idle timeout with a request open", failure{proto: h3, err: &quic.IdleTimeoutError{}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenAfterDeath},
		{"stateless reset", failure{proto: h3, err: &quic.StatelessResetError{}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenAfterDeath},
		{"transport error of the peer", failure{proto: h3, err: &quic.TransportError{Remote: true, ErrorCode: quic.ProtocolViolation}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenAfterDeath},
		{"client certificate refused, QUIC", failure{proto: h3, err: &quic.TransportError{Remote: true, ErrorCode: 0x174}}, delivery.SentAmbiguous, delivery.CauseTLS, delivery.BrokenAfterDeath},
		{"client certificate refused, TCP", failure{proto: h1, err: &net.OpError{Op: "remote error", Err: tls.AlertError(116)}}, delivery.SentAmbiguous, delivery.CauseTLS, delivery.BrokenNot},
		{"a system call failed", failure{proto: h3, err: &quic.TransportError{ErrorCode: quic.InternalError}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
		{"closed by us", failure{proto: h3, err: &quic.ApplicationError{ErrorCode: closeCode}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
		{"closed by our shutdown", failure{proto: h3, err: &quic.ApplicationError{ErrorCode: closeCode}, closing: true}, delivery.SentAmbiguous, delivery.CauseShutdown, delivery.BrokenNot},
		{"net.ErrClosed alone", failure{proto: h3, err: net.ErrClosed}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},

		// The codes of a refusal count only on the stream, and from the peer.
		{"our own reset with 0x10b", failure{proto: h3, err: &quic.StreamError{ErrorCode: 0x10b}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
		{"a stream error on HTTP/1.1", failure{proto: h1, err: &quic.StreamError{ErrorCode: 0x10b, Remote: true}}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
		{"the text of a GOAWAY on HTTP/1.1", failure{proto: h1, err: errors.New(http2GoAwayGraceful)}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
		{"a text that only contains it", failure{proto: h2, err: fmt.Errorf("said %s", http2GoAwayGraceful)}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},

		// Proofs beat the deadline that comes with them.
		{"GOAWAY and deadline", failure{proto: h3, err: deadline, ctxErr: deadline, goAway: true}, delivery.SentRefused, delivery.CauseGoAway, delivery.BrokenDrain},
		{"never written and deadline", failure{proto: h3, err: deadline, ctxErr: deadline, never: true}, delivery.SentNever, delivery.CauseStreams, delivery.BrokenNot},
		{"never written, HTTP/1.1", failure{proto: h1, err: deadline, ctxErr: deadline, never: true}, delivery.SentNever, delivery.CauseTimeout, delivery.BrokenNot},
		{"never written and canceled", failure{proto: h2, err: canceled, ctxErr: canceled, never: true}, delivery.SentNever, delivery.CauseShutdown, delivery.BrokenNot},
		{"never written, draining", failure{proto: h3, err: conn, never: true}, delivery.SentNever, delivery.CauseGoAway, delivery.BrokenDrain},
		{"never written, connection gone", failure{proto: h2, err: errors.New("http2: client conn not usable"), never: true}, delivery.SentNever, delivery.CauseReset, delivery.BrokenNot},
		{"lease lost at the last moment", failure{proto: h3, err: conn, never: true, unleased: true}, delivery.SentNever, delivery.CauseShutdown, delivery.BrokenNot},

		{"deadline after a header", failure{proto: h3, err: deadline, ctxErr: deadline}, delivery.SentAmbiguous, delivery.CauseTimeout, delivery.BrokenNot},
		{"deadline in silence", failure{proto: h3, err: deadline, ctxErr: deadline, silent: true}, delivery.SentAmbiguous, delivery.CauseTimeout, delivery.BrokenAfterDeath},
		{"canceled in silence", failure{proto: h3, err: canceled, ctxErr: canceled, silent: true}, delivery.SentAmbiguous, delivery.CauseShutdown, delivery.BrokenNot},
		{"deadline in silence over TCP", failure{proto: h2, err: deadline, ctxErr: deadline, silent: true}, delivery.SentAmbiguous, delivery.CauseTimeout, delivery.BrokenNot},
		{"EOF on a reused HTTP/1.1 connection", failure{proto: h1, err: io.EOF}, delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.f.phase = phaseExchange
			got := classify(c.f)
			if got.Sent != c.sent || got.Cause != c.cause || got.Broken != c.broken {
				t.Fatalf("%v, %v, %v; want %v, %v, %v", got.Sent, got.Cause, got.Broken, c.sent, c.cause, c.broken)
			}
		})
	}
}

func TestDialClassifierKnowsEachRow(t *testing.T) {
	cases := []struct {
		name   string
		phase  phase
		err    error
		cause  delivery.Cause
		broken delivery.Broken
	}{
		{"denied answer", phaseResolve, &netguard.DeniedError{}, delivery.CausePolicy, delivery.BrokenNot},
		{"denied literal", phaseQUIC, &netguard.DeniedError{Literal: true}, delivery.CausePolicyLiteral, delivery.BrokenNot},
		{"no such name", phaseResolve, &net.DNSError{}, delivery.CauseDNS, delivery.BrokenNot},
		{"no ephemeral port", phaseConnect, fmt.Errorf("connect: %w", syscall.EADDRNOTAVAIL), delivery.CausePorts, delivery.BrokenNot},
		{"no file", phaseConnect, fmt.Errorf("socket: %w", syscall.EMFILE), delivery.CauseLocal, delivery.BrokenNot},
		{"no file for UDP", phaseQUIC, fmt.Errorf("socket: %w", syscall.ENFILE), delivery.CauseLocal, delivery.BrokenNot},
		{"refused", phaseConnect, syscall.ECONNREFUSED, delivery.CauseConnect, delivery.BrokenNot},
		{"reset during TLS", phaseTLS, syscall.ECONNRESET, delivery.CauseConnect, delivery.BrokenNot},
		{"deadline during TLS", phaseTLS, context.DeadlineExceeded, delivery.CauseConnect, delivery.BrokenNot},
		{"unknown CA", phaseTLS, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, delivery.CauseTLS, delivery.BrokenNot},
		{"proxy", phaseProxy, io.EOF, delivery.CauseProxy, delivery.BrokenNot},
		{"handshake timeout of a peer that drips", phaseQUIC, &quic.HandshakeTimeoutError{}, delivery.CauseConnect, delivery.BrokenTimeout},
		{"certificate refused by us", phaseQUIC, &quic.TransportError{ErrorCode: 0x100 + 42}, delivery.CauseTLS, delivery.BrokenCertificate},
		{"certificate of ours refused", phaseQUIC, &quic.TransportError{ErrorCode: 0x100 + 42, Remote: true}, delivery.CauseTLS, delivery.BrokenExplicit},
		{"ALPN", phaseQUIC, &quic.TransportError{ErrorCode: 0x178, Remote: true}, delivery.CauseTLS, delivery.BrokenExplicit},
		{"one address is silent, the other has the wrong certificate", phaseQUIC, errors.Join(&quic.IdleTimeoutError{},
			&quic.TransportError{ErrorCode: 0x12a}), delivery.CauseTLS, delivery.BrokenCertificate},
		{"no route", phaseQUIC, syscall.ENETUNREACH, delivery.CauseConnect, delivery.BrokenNot},
		{"no route, as quic-go tells it", phaseQUIC, &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "network is unreachable"}, delivery.CauseConnect, delivery.BrokenNot},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := classify(failure{phase: c.phase, err: c.err})
			if got.Sent != delivery.SentNever || got.Cause != c.cause || got.Broken != c.broken {
				t.Fatalf("%v, %v, %v; want never, %v, %v", got.Sent, got.Cause, got.Broken, c.cause, c.broken)
			}
		})
	}
}

func TestDetailIsOneBoundedPrintableLine(t *testing.T) {
	hostile := errors.New("a\r\nb\x1b[31m\x00\xff" + strings.Repeat("ü", 1000))
	got := detail(hostile)
	if len(got) > maxDetail+len("…") || strings.ContainsAny(got, "\r\n\x1b\x00") || !strings.HasPrefix(got, "a  b?[31m??ü") {
		t.Fatalf("%q", got)
	}
	if detail(nil) != "" {
		t.Fatal("no error has a detail")
	}
}
