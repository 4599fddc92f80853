package doctor

import (
	"net/netip"
	"slices"
	"time"
)

// Report is what an examination found. It goes out as JSON as it is.
type Report struct {
	// Origin is scheme, host and port; "" if the URL did not parse.
	Origin string `json:"origin"`
	// Works: a delivery would succeed, as far as was looked.
	Works bool `json:"works"`
	// Problems, the worst first.
	Problems []Problem `json:"problems"`
	// Addresses are the host's, in the order of the answer.
	Addresses []Address `json:"addresses"`
	// HTTPSRecord is what DNS says about HTTP/3, in one line; "" = not asked.
	HTTPSRecord string `json:"https_record,omitempty"`
	// Services are the HTTP/3 services that were tried.
	Services []Service `json:"http3"`
	// Post is the test POST, nil if none was asked for or nothing was reached.
	Post *Posted `json:"post,omitempty"`
	// TookMS is how long the examination took.
	TookMS float64 `json:"took_ms"`
}

// Severity is how bad a problem is.
type Severity string

// Severities, the worst first.
const (
	SeverityError   Severity = "error"   // deliveries fail
	SeverityWarning Severity = "warning" // they work, but not as well or not for long
	SeverityNote    Severity = "note"    // worth knowing
)

var severities = []Severity{SeverityError, SeverityWarning, SeverityNote}

// Problem is one thing that is wrong, and how to mend it.
type Problem struct {
	Severity Severity `json:"severity"`
	// Code is a stable name, for scripts.
	Code string `json:"code"`
	// About is where: addresses, an alternative's authority, "url".
	About []string `json:"about"`
	What  string   `json:"what"`
	Mend  string   `json:"mend"`
}

// Address is one address of the host.
type Address struct {
	Address netip.Addr `json:"address"`
	Allowed bool       `json:"allowed"`
	// Rule is what denies it, or what a setting has lifted; "" = none applies.
	Rule string `json:"rule,omitempty"`
	// Setting is what would lift the rule, or has.
	Setting string `json:"setting,omitempty"`
	// Carries is the IPv4 address inside that decided.
	Carries *netip.Addr `json:"carries,omitempty"`
	// TCP and QUIC are the handshakes with it; nil = not tried.
	TCP  *Handshake  `json:"tcp,omitempty"`
	QUIC []Handshake `json:"quic,omitempty"`
}

// Handshake is one attempt to connect to one address.
type Handshake struct {
	// Up: a delivery could use it.
	Up   bool   `json:"up"`
	Port uint16 `json:"port"`
	// Protocol is what ALPN chose: h2, http/1.1, h3; "" = nothing.
	Protocol    string  `json:"protocol,omitempty"`
	TLSVersion  string  `json:"tls_version,omitempty"`
	QUICVersion string  `json:"quic_version,omitempty"`
	ConnectMS   float64 `json:"connect_ms,omitempty"`
	TLSMS       float64 `json:"tls_ms,omitempty"`
	QUICMS      float64 `json:"quic_ms,omitempty"`
	// Chain is what the peer showed, its own certificate first.
	Chain []Certificate `json:"chain,omitempty"`
	// Verified: the chain leads to a trusted root and is for the host.
	Verified bool `json:"verified"`
	// ClientCertificate: the peer asked for one.
	ClientCertificate bool `json:"client_certificate_asked,omitempty"`
	// Error is why it is not up.
	Error string `json:"error,omitempty"`
}

// Certificate is one certificate of a chain.
type Certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// Service is one HTTP/3 service: an alternative of the origin.
type Service struct {
	Authority string `json:"authority"`
	// Source is who advertises it: alt_svc, https_record; "assumed" = nobody, it
	// is the origin's own port.
	Source string `json:"source"`
	Up     bool   `json:"up"`
	// Verdict is up, timeout, explicit, certificate, failed or canceled.
	Verdict string  `json:"verdict"`
	Detail  string  `json:"detail,omitempty"`
	TookMS  float64 `json:"took_ms"`
}

// Posted is the test POST and what became of it.
type Posted struct {
	ID       string `json:"id"` // webhook-id
	Status   int    `json:"status"`
	Protocol string `json:"protocol"`
	Remote   string `json:"remote,omitempty"`
	// Outcome and Reason are what a delivery with this result would be.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	// Sent is what is known about a request without an answer.
	Sent   string   `json:"sent,omitempty"`
	Detail string   `json:"detail,omitempty"`
	Phases Phases   `json:"phases"`
	AltSvc []string `json:"alt_svc,omitempty"`
	// RetryAfter and Location are headers of the answer.
	RetryAfter string `json:"retry_after,omitempty"`
	Location   string `json:"location,omitempty"`
	// Body is the beginning of the answer's body.
	Body string `json:"body,omitempty"`
}

// Phases are the durations of the POST's steps in milliseconds; 0 = did not
// happen.
type Phases struct {
	DNS       float64 `json:"dns_ms"`
	Connect   float64 `json:"connect_ms"`
	TLS       float64 `json:"tls_ms"`
	QUIC      float64 `json:"quic_ms"`
	FirstByte float64 `json:"first_byte_ms"`
	Total     float64 `json:"total_ms"`
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// add notes a problem. The same one in another place is not another one.
func (r *Report) add(p Problem) {
	for i, old := range r.Problems {
		if old.Severity == p.Severity && old.Code == p.Code && old.What == p.What && old.Mend == p.Mend {
			for _, where := range p.About {
				if !slices.Contains(old.About, where) {
					r.Problems[i].About = append(r.Problems[i].About, where)
				}
			}
			return
		}
	}
	r.Problems = append(r.Problems, p)
}

// sort puts the worst problems first and leaves the rest of their order.
func (r *Report) sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
}
