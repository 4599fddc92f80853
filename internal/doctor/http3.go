package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// http3 finds the origin's HTTP/3 services, by its HTTPS record and by the
// Alt-Svc header of the POST if there was one, and tries them.
func (e *examination) http3(ctx context.Context) {
	found := e.selector.Probe(ctx, e.endpoint)
	if found.HTTPSRecord.Origin.Host != "" {
		e.report.HTTPSRecord = found.HTTPSRecord.String()
	}
	for _, d := range found.HTTP3 {
		e.report.Services = append(e.report.Services, Service{
			Authority: d.Authority, Source: d.Source.String(), Up: d.Verdict == protoselect.VerdictUp,
			Verdict: string(d.Verdict), Detail: d.Detail, TookMS: millis(d.Took),
		})
		e.judgeService(d)
		if host, port, ok := splitAuthority(d.Authority); ok && host == e.target.Host {
			e.inspectQUIC(ctx, port)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.refused {
		e.report.add(refusal(r))
	}
}

// inspectQUIC makes a handshake with every address on one UDP port, once.
func (e *examination) inspectQUIC(ctx context.Context, port uint16) {
	e.each(func(a *Address, to netip.AddrPort) {
		for _, h := range a.QUIC {
			if h.Port == port {
				return
			}
		}
		to = netip.AddrPortFrom(to.Addr(), port)
		a.QUIC = append(a.QUIC, e.handshake(port, e.transport.Inspect(ctx, e.endpoint, to, true)))
	})
}

func splitAuthority(authority string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(authority)
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil
}

// judgeService says what a service means for deliveries. TCP carries them in
// any case, so nothing here is an error.
func (e *examination) judgeService(d protoselect.ProbeDial) {
	_, port, _ := splitAuthority(d.Authority)
	p := Problem{Severity: SeverityWarning, Code: "http3_" + string(d.Verdict), About: []string{d.Authority}}
	switch {
	case d.Source == protoselect.SourceAssumed && d.Verdict != protoselect.VerdictUp:
		return // nobody said that there is any
	case d.Source == protoselect.SourceAssumed:
		p.Severity, p.Code = SeverityNote, "http3_not_advertised"
		p.What = "it speaks HTTP/3; whether its answers say so shows with --post"
		if e.report.Post != nil {
			p.What = "it speaks HTTP/3 and does not say so: deliveries stay on TCP"
		}
		p.Mend = fmt.Sprintf(`have it answer with the header Alt-Svc: h3=":%d", or publish an HTTPS record with alpn=h3`, port)
	case d.Verdict == protoselect.VerdictUp, d.Verdict == protoselect.VerdictCanceled:
		return
	case d.Verdict == protoselect.VerdictTimeout:
		p.What = "it advertises HTTP/3 and does not answer over UDP: deliveries fall back to TCP"
		p.Mend = fmt.Sprintf("let UDP port %d through to the receiver, or have it stop advertising HTTP/3", port)
	case d.Verdict == protoselect.VerdictCertificate:
		p.What = "over HTTP/3 its certificate does not speak for the host: " + d.Detail
		p.Mend = "have it serve the same certificate over UDP as over TCP"
	case d.Verdict == protoselect.VerdictExplicit:
		p.What = "it advertises HTTP/3 and refuses it: " + d.Detail
		p.Mend = "have its QUIC listener speak version 1 with ALPN h3, or stop advertising HTTP/3"
	default:
		p.What = "HTTP/3 could not be tried: " + d.Detail
		p.Mend = "look at this machine's way out over UDP"
	}
	e.report.add(p)
}

// refusal explains an advertised service that our own policy does not use.
func refusal(r protoselect.AlternativeRefused) Problem {
	p := Problem{
		Severity: SeverityNote, Code: "http3_" + string(r.Rule), About: []string{r.Alternative},
		What: fmt.Sprintf("%s advertises it, and policy does not use it (%s)", r.Source, r.Rule),
	}
	switch r.Rule {
	case protoselect.RefusedHost:
		p.Mend = "advertise HTTP/3 on the host itself, or name this one in http3_hosts"
	case protoselect.RefusedPort, protoselect.RefusedPrivileged:
		p.Mend = "advertise HTTP/3 on the port of the URL, or name this one in http3_ports"
	case protoselect.RefusedIPLiteral:
		p.Mend = "advertise a name, not an address"
	default:
		p.Mend = "advertise HTTP/3 over https"
	}
	return p
}

// overall is the verdict of a POST's transport for the text of a report.
func overall(p *Posted) string {
	if p.Status != 0 {
		return fmt.Sprintf("%d over %s", p.Status, p.Protocol)
	}
	if p.Protocol == delivery.ProtocolNone.String() {
		return "not sent"
	}
	return "no answer over " + p.Protocol
}
