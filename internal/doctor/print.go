package doctor

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the report for people: what was found, then each problem with
// the line that says how to mend it.
func (r Report) Print(w io.Writer) error {
	var b bytes.Buffer
	if r.Origin != "" {
		fmt.Fprintf(&b, "%s\n", r.Origin)
	}
	for _, a := range r.Addresses {
		printAddress(&b, a)
	}
	r.printChain(&b)
	if r.HTTPSRecord != "" {
		fmt.Fprintf(&b, "  https record: %s\n", r.HTTPSRecord)
	}
	for _, s := range r.Services {
		printService(&b, s)
	}
	if r.Post != nil {
		printPost(&b, r.Post)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s: %s\n  mend: %s\n", p.Severity, strings.Join(p.About, ", "), p.What, p.Mend)
	}
	switch {
	case r.Works && r.Post != nil:
		fmt.Fprintln(&b, "a delivery works")
	case r.Works:
		fmt.Fprintln(&b, "a delivery would reach it; --post tries one")
	default: // whoever prints this says so by an exit status and its line
	}
	_, err := w.Write(b.Bytes())
	return err
}

func printAddress(w io.Writer, a Address) {
	verdict := "allowed"
	switch {
	case !a.Allowed:
		verdict = "denied by rule " + a.Rule
	case a.Rule != "":
		verdict = fmt.Sprintf("allowed by %s against rule %s", a.Setting, a.Rule)
	}
	if a.Carries != nil {
		verdict += fmt.Sprintf(" (it carries %s)", a.Carries)
	}
	fmt.Fprintf(w, "  %s: %s\n", a.Address, verdict)
	if a.TCP != nil {
		printHandshake(w, "tcp", *a.TCP)
	}
	for _, h := range a.QUIC {
		printHandshake(w, "udp", h)
	}
}

func printHandshake(w io.Writer, network string, h Handshake) {
	fmt.Fprintf(w, "    %s port %d:", network, h.Port)
	if h.ConnectMS > 0 {
		fmt.Fprintf(w, " connected in %g ms;", h.ConnectMS)
	}
	switch {
	case !h.Up:
		fmt.Fprintf(w, " failed: %s\n", h.Error)
		return
	case h.QUICVersion != "":
		fmt.Fprintf(w, " QUIC %s in %g ms, %s", h.QUICVersion, h.QUICMS, h.TLSVersion)
	case h.TLSVersion != "":
		fmt.Fprintf(w, " %s in %g ms", h.TLSVersion, h.TLSMS)
	}
	if h.Protocol != "" {
		fmt.Fprintf(w, ", ALPN %s", h.Protocol)
	} else if h.TLSVersion != "" {
		fmt.Fprint(w, ", no ALPN: HTTP/1.1")
	}
	fmt.Fprintln(w)
}

// printChain writes each different chain once, with the handshakes that showed
// it.
func (r Report) printChain(w io.Writer) {
	seen := map[string]bool{}
	for _, a := range r.Addresses {
		all := a.QUIC
		if a.TCP != nil {
			all = append([]Handshake{*a.TCP}, all...)
		}
		for _, h := range all {
			text := chainText(h)
			if text != "" && !seen[text] {
				seen[text] = true
				fmt.Fprint(w, text)
			}
		}
	}
}

func chainText(h Handshake) string {
	if len(h.Chain) == 0 {
		return ""
	}
	var b strings.Builder
	verdict := "verified"
	if !h.Verified {
		verdict = "NOT verified"
	}
	fmt.Fprintf(&b, "  certificate, %s:\n", verdict)
	for _, c := range h.Chain {
		fmt.Fprintf(&b, "    %s, by %s, until %s\n", c.Subject, c.Issuer, c.NotAfter.UTC().Format(time.DateOnly))
		if len(c.Names) > 0 {
			fmt.Fprintf(&b, "      for %s\n", strings.Join(c.Names, ", "))
		}
	}
	return b.String()
}

func printService(w io.Writer, s Service) {
	how := "advertised by " + s.Source
	if s.Source == "assumed" {
		how = "not advertised"
	}
	fmt.Fprintf(w, "  http/3 on %s, %s: %s", s.Authority, how, s.Verdict)
	if s.Detail != "" {
		fmt.Fprintf(w, " (%s)", s.Detail)
	}
	fmt.Fprintln(w)
}

func printPost(w io.Writer, p *Posted) {
	fmt.Fprintf(w, "  POST %s: %s, which is %s (%s)\n", p.ID, overall(p), p.Outcome, p.Reason)
	fmt.Fprintf(w, "    dns %g ms, connect %g ms, tls %g ms, quic %g ms, first byte %g ms, total %g ms\n",
		p.Phases.DNS, p.Phases.Connect, p.Phases.TLS, p.Phases.QUIC, p.Phases.FirstByte, p.Phases.Total)
	for _, line := range p.AltSvc {
		fmt.Fprintf(w, "    alt-svc: %s\n", line)
	}
	if p.Location != "" {
		fmt.Fprintf(w, "    location: %s\n", p.Location)
	}
	if p.RetryAfter != "" {
		fmt.Fprintf(w, "    retry-after: %s\n", p.RetryAfter)
	}
	if p.Body != "" {
		fmt.Fprintf(w, "    body: %s\n", p.Body)
	}
}
