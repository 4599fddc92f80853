package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// maxAddresses bounds the addresses that are dialled; a delivery dials as many.
const maxAddresses = 16

// resolve finds the host's addresses and judges each. It returns whether a
// delivery would dial at all: one denied address denies the name.
func (e *examination) resolve(ctx context.Context) bool {
	addrs, err := e.lookup(ctx)
	if err != nil {
		e.report.add(Problem{
			Severity: SeverityError, Code: "dns", About: []string{e.target.Host},
			What: lookupFailure(err), Mend: "check the name, and its A and AAAA records as this machine's resolver sees them",
		})
		return false
	}
	ok := true
	for _, addr := range addrs {
		v := e.guard.CheckAddrPort(netip.AddrPortFrom(addr, e.target.Port))
		a := Address{Address: v.Addr, Allowed: v.Allowed, Rule: string(v.Rule), Setting: v.Setting}
		if v.Embedded.IsValid() {
			a.Carries = &v.Embedded
		}
		e.report.Addresses = append(e.report.Addresses, a)
		if !v.Allowed {
			ok = false
			e.denied(addr, v)
		}
	}
	return ok
}

func (e *examination) denied(addr netip.Addr, v netguard.Verdict) {
	err := e.guard.CheckAnswer(e.target.Host, []netip.Addr{addr}, e.target.Port)
	mend := "no setting allows it: use another address"
	if denied, ok := errors.AsType[*netguard.DeniedError](err); ok && denied.Setting != "" {
		mend = denied.Hint()
	}
	what := "denied by rule " + string(v.Rule)
	if len(e.report.Addresses) > 1 {
		what += ", and with it every address of the name"
	}
	e.report.add(Problem{Severity: SeverityError, Code: "address_denied", About: []string{addr.String()}, What: what, Mend: mend})
}

// lookup asks once, as a dial does. localhost is answered by the policy.
func (e *examination) lookup(ctx context.Context) ([]netip.Addr, error) {
	host := e.target.Host
	switch {
	case e.target.Addr.IsValid():
		return []netip.Addr{e.target.Addr}, nil
	case host == "localhost", strings.HasSuffix(host, ".localhost"):
		return e.guard.Resolve(ctx, host)
	}
	var resolver netguard.Resolver = net.DefaultResolver
	if e.config.Guard.Resolver != nil {
		resolver = e.config.Guard.Resolver
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip", host+".")
	if err == nil && len(addrs) == 0 {
		err = netguard.ErrNoAddress
	}
	return addrs, err
}

func lookupFailure(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "the name does not exist, or has no address"
		case dns.IsTimeout:
			return "no resolver answers"
		}
		return "the lookup failed: " + dns.Err
	}
	return "the lookup failed: " + err.Error()
}

// inspect makes a handshake with every address over TCP and, where there is TLS,
// over QUIC on the origin's own port.
func (e *examination) inspect(ctx context.Context) {
	tcp := make(map[netip.Addr]transport.Inspected, len(e.report.Addresses))
	var quic sync.WaitGroup
	if e.target.URL.Scheme == "https" {
		quic.Go(func() { e.inspectQUIC(ctx, e.target.Port) })
	}
	e.each(func(a *Address, to netip.AddrPort) {
		got := e.transport.Inspect(ctx, e.endpoint, to, false)
		h := e.handshake(to.Port(), got)
		a.TCP = &h
		e.mu.Lock()
		defer e.mu.Unlock()
		tcp[a.Address] = got
	})
	quic.Wait()
	working := 0
	for _, a := range e.report.Addresses {
		if a.TCP != nil && a.TCP.Up {
			working++
		}
	}
	severity := SeverityError
	if working > 0 {
		severity = SeverityWarning // deliveries go on to the next address
	}
	for _, a := range e.report.Addresses {
		if a.TCP == nil {
			continue
		}
		e.judgeTCP(a.Address.String(), tcp[a.Address], severity)
	}
}

// judgeTCP says what is wrong with one address over TCP.
func (e *examination) judgeTCP(about string, got transport.Inspected, severity Severity) {
	if got.TLS != nil {
		e.judgeChain(about, got)
	}
	if got.CertificateAsked && (e.config.TLS == nil || len(e.config.TLS.ClientCertPEM) == 0) {
		e.report.add(Problem{
			Severity: SeverityWarning, Code: "client_certificate", About: []string{about},
			What: "the receiver asks for a client certificate, and may insist",
			Mend: "give the subscriber tls.client_cert_pem and tls.client_key_pem (--client-cert and --client-key here)",
		})
	}
	if got.Err == nil || got.Unverified != nil {
		return
	}
	p := failure(got, e.target.Port)
	p.Severity, p.About = severity, []string{about}
	e.report.add(p)
}

// failure explains a handshake over TCP that did not come to a certificate's
// name.
func failure(got transport.Inspected, port uint16) Problem {
	connected := got.Handshake.Connect > 0
	detail := got.Err.Detail
	switch err := got.Err.Err; {
	case got.Err.Cause == delivery.CauseTLS:
		return tlsFailure(err, detail)
	case got.Err.Cause == delivery.CauseLocal, got.Err.Cause == delivery.CausePorts:
		return Problem{Code: "local", What: detail, Mend: "it is this machine's: free what it has run out of, or correct the TLS material"}
	case connected:
		return Problem{Code: "tls_silent", What: "it accepts the connection and ends it, or says nothing, in the TLS handshake: " + detail,
			Mend: fmt.Sprintf("check that port %d speaks TLS and that no firewall resets it", port)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Problem{Code: "connect_refused", What: "it refuses the connection",
			Mend: fmt.Sprintf("check that the receiver runs and listens on TCP port %d", port)}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return Problem{Code: "unreachable", What: "this machine has no route to it",
			Mend: "give this machine a route for that family, or take the address out of DNS"}
	case errors.Is(err, context.DeadlineExceeded):
		return Problem{Code: "connect_timeout", What: "nothing answers",
			Mend: fmt.Sprintf("let this machine through to TCP port %d in the firewalls between", port)}
	}
	return Problem{Code: "connect_failed", What: detail, Mend: fmt.Sprintf("check the way to TCP port %d", port)}
}
