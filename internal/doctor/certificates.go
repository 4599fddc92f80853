package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/transport"
)

// expirySoon is when an operator hears of a certificate's end: automatic
// renewals are done by then.
const expirySoon = 14 * 24 * time.Hour

// handshake takes what an inspection showed into the report's form.
func (e *examination) handshake(port uint16, got transport.Inspected) Handshake {
	h := Handshake{
		Up: got.Err == nil, Port: port, QUICVersion: got.QUICVersion, ClientCertificate: got.CertificateAsked,
		ConnectMS: millis(got.Handshake.Connect), TLSMS: millis(got.Handshake.TLS), QUICMS: millis(got.Handshake.QUIC),
	}
	if got.Err != nil {
		h.Error = got.Err.Detail
	}
	if got.TLS == nil {
		return h
	}
	h.Protocol, h.TLSVersion = got.TLS.NegotiatedProtocol, tls.VersionName(got.TLS.Version)
	h.Verified = got.Unverified == nil
	for _, c := range got.TLS.PeerCertificates {
		h.Chain = append(h.Chain, Certificate{
			Subject: printable(c.Subject.String()), Issuer: printable(c.Issuer.String()), Names: namesOf(c), NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		})
	}
	return h
}

func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for i := range names {
		names[i] = printable(names[i]) // whoever made the certificate wrote it
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// judgeChain says what is wrong with a certificate, or soon will be.
func (e *examination) judgeChain(about string, got transport.Inspected) {
	certs := got.TLS.PeerCertificates
	if len(certs) == 0 {
		return
	}
	if got.Unverified != nil {
		p := e.chainFault(got.Unverified, certs)
		p.Severity, p.About = SeverityError, []string{about}
		e.report.add(p)
		return
	}
	now := time.Now()
	for _, c := range certs {
		if left := c.NotAfter.Sub(now); left < expirySoon {
			e.report.add(Problem{
				Severity: SeverityWarning, Code: "certificate_expires_soon", About: []string{about},
				What: fmt.Sprintf("the certificate of %s expires %s, on %s", nameOf(c), in(left), c.NotAfter.UTC().Format(time.DateTime)),
				Mend: "have the receiver renew it before",
			})
		}
	}
}

// in says a time to come in days, or hours near the end.
func in(left time.Duration) string {
	if left < 48*time.Hour {
		return fmt.Sprintf("in %d hours", int(left.Hours()))
	}
	return fmt.Sprintf("in %d days", int(left.Hours()/24))
}

func nameOf(c *x509.Certificate) string {
	if names := namesOf(c); len(names) > 0 {
		return names[0]
	}
	return printable(c.Subject.String())
}

// chainFault explains why a chain does not speak for the host.
func (e *examination) chainFault(err error, certs []*x509.Certificate) Problem {
	leaf := certs[0]
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return expired(invalid.Cert)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		names := strings.Join(namesOf(leaf), ", ")
		if names == "" {
			names = "no name at all (a common name does not count)"
		}
		return Problem{Code: "certificate_name", What: fmt.Sprintf("the certificate is for %s and not for %s", names, e.target.Host),
			Mend: fmt.Sprintf("have the receiver serve a certificate for %s, or register the name that it has", e.target.Host)}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return e.unknownIssuer(certs)
	}
	if _, ok := errors.AsType[x509.SystemRootsError](err); ok {
		return Problem{Code: "no_roots", What: "this machine has no root certificates to verify with", Mend: "install the system's CA certificates"}
	}
	return Problem{Code: "certificate", What: "the certificate is not valid: " + printable(err.Error()), Mend: "have the receiver replace it"}
}

func expired(c *x509.Certificate) Problem {
	if now := time.Now(); now.Before(c.NotBefore) {
		return Problem{Code: "certificate_not_yet", What: fmt.Sprintf("the certificate of %s is valid from %s on", nameOf(c), c.NotBefore.UTC().Format(time.DateTime)),
			Mend: "check the clocks of this machine and of the receiver"}
	}
	return Problem{Code: "certificate_expired", What: fmt.Sprintf("the certificate of %s expired on %s", nameOf(c), c.NotAfter.UTC().Format(time.DateTime)),
		Mend: "have the receiver renew it"}
}

// unknownIssuer tells the three ways in which a root is not found.
func (e *examination) unknownIssuer(certs []*x509.Certificate) Problem {
	leaf, last := certs[0], certs[len(certs)-1]
	switch {
	case e.config.TLS != nil && len(e.config.TLS.CAPEM) > 0:
		return Problem{Code: "certificate_authority", What: fmt.Sprintf("the certificate was issued by %s, not under the CA that was given", printable(leaf.Issuer.String())),
			Mend: "give the CA that issued it; a CA of one's own replaces the system's"}
	case leaf.Subject.String() == leaf.Issuer.String():
		return Problem{Code: "certificate_self_signed", What: "the certificate is self-signed",
			Mend: "give it as the subscriber's tls.ca_pem (--ca FILE here)"}
	case last.Subject.String() == last.Issuer.String():
		return Problem{Code: "certificate_authority", What: fmt.Sprintf("the certificate leads to %s, which this machine does not trust", printable(last.Subject.String())),
			Mend: "give that CA as the subscriber's tls.ca_pem (--ca FILE here)"}
	}
	return Problem{Code: "certificate_chain", What: fmt.Sprintf("the chain ends at %s and the next certificate is missing or not trusted", printable(last.Issuer.String())),
		Mend: "have the receiver send its intermediate certificates; give a private CA as tls.ca_pem (--ca FILE here)"}
}

// Alerts that say more than their number (RFC 8446 section 6.2).
const (
	alertHandshakeFailure = 40
	alertProtocolVersion  = 70
	alertNoApplication    = 120
)

// tlsFailure explains a TLS handshake that failed for another reason than the
// certificate.
func tlsFailure(err error, detail string) Problem {
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		what := "the port does not speak TLS"
		if strings.HasPrefix(string(header.RecordHeader[:]), "HTTP/") {
			what = "the port speaks http without TLS"
		}
		return Problem{Code: "not_tls", What: what, Mend: "correct the port, or have the receiver serve TLS; an http URL needs --allow-http"}
	}
	switch alert, _ := errors.AsType[tls.AlertError](err); uint8(alert) {
	case alertHandshakeFailure, alertProtocolVersion:
		return Problem{Code: "tls_version", What: "there is no TLS version or cipher that both sides take: " + detail,
			Mend: "have the receiver enable TLS 1.3, or 1.2 with modern ciphers"}
	case alertNoApplication:
		return Problem{Code: "alpn", What: "the receiver takes neither HTTP/2 nor HTTP/1.1 on this port", Mend: "correct the port, or have it offer h2 or http/1.1 by ALPN"}
	}
	return Problem{Code: "tls", What: "the TLS handshake failed: " + detail, Mend: "see what the receiver logs about it"}
}
