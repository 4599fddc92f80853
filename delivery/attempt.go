package delivery

import "time"

// Protocol is what an attempt went over. The zero value means that no
// connection was made.
type Protocol uint8

// Protocols. The numbers are stored.
const (
	ProtocolNone  Protocol = 0
	ProtocolHTTP1 Protocol = 1
	ProtocolHTTP2 Protocol = 2
	ProtocolHTTP3 Protocol = 3
)

var protocolNames = [...]string{"none", "h1", "h2", "h3"}

// String returns the wire name.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return "invalid"
}

// Sent says what is known about whether the peer processed a request. The
// zero value is ambiguous on purpose: what nobody classified may have been
// processed.
type Sent uint8

// Classes of a failed request; design: "sent or not". The numbers are stored.
const (
	SentAmbiguous Sent = 0 // A: bytes left and no proof either way
	SentNever     Sent = 1 // N: not a byte of the request left
	SentRefused   Sent = 2 // R: the peer says that it did not process it
	SentProcessed Sent = 3 // P: response headers were seen
)

var sentNames = [...]string{"ambiguous", "never", "refused", "processed"}

// String returns the wire name.
func (s Sent) String() string {
	if int(s) < len(sentNames) {
		return sentNames[s]
	}
	return "invalid"
}

// Resendable reports whether the same attempt may write the request again.
func (s Sent) Resendable() bool { return s == SentNever || s == SentRefused }

// Cause is the class of a failure on the way to an answer.
type Cause uint8

// Causes of a failure. The numbers are stored: append only.
const (
	CauseNone          Cause = 0
	CauseDNS           Cause = 1
	CauseConnect       Cause = 2 // TCP or QUIC handshake: refused, unreachable, timed out
	CauseTLS           Cause = 3 // certificate, ALPN, TLS alert
	CausePolicy        Cause = 4 // netguard denied an answer of DNS
	CausePolicyLiteral Cause = 5 // netguard denied an address in the URL itself
	CauseProxy         Cause = 6 // the egress proxy refused or failed
	CauseLocal         Cause = 7 // our side: files, bad TLS material, broken payload
	CausePorts         Cause = 8 // no ephemeral port left
	CauseReset         Cause = 9 // the peer reset the request or closed the connection
	CauseGoAway        Cause = 10
	CauseTimeout       Cause = 11 // a deadline of ours fired
	CauseProtocol      Cause = 12 // the peer broke the protocol
	CauseShutdown      Cause = 13 // we stopped, or lost the lease
	CauseRecovered     Cause = 14 // the node died while the row was leased
	CauseStreams       Cause = 15 // no stream to send on before the deadline
)

var causeNames = [...]string{
	"none", "dns", "connect", "tls", "policy", "policy_literal", "proxy", "local", "ports", "reset", "goaway",
	"timeout", "protocol", "shutdown", "recovered", "streams",
}

// String returns the wire name.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return "invalid"
}

// Phases are the durations of one attempt's steps; zero = did not happen (a
// reused connection has no DNS, Connect or TLS).
type Phases struct {
	DNS       time.Duration
	Connect   time.Duration // TCP connect
	TLS       time.Duration // TLS over TCP
	QUIC      time.Duration // QUIC handshake, TLS included
	FirstByte time.Duration // request written to response headers
	Total     time.Duration // start of the attempt to its end
}

// Result is what sending one attempt gave: an answer or a failure. Transport
// and selector fill it; [Classify] judges it.
type Result struct {
	Status     int    // HTTP status; 0 = no response headers were seen
	Sent       Sent   // meaningful when Status is 0
	Cause      Cause  // meaningful when Status is 0
	Detail     string // one line for the operator; never a secret, at most 512 bytes
	RetryAfter string // the header as received, "" = absent
	Date       string // the response's Date header, "" = absent
	Location   string // redirect target, kept as a hint
	Protocol   Protocol
	Reused     bool   // the connection was warm
	Fallback   bool   // a second try inside this attempt, after N or R
	RaceLoser  string // verdict of the connection that lost the race, "" = no race
	Remote     string // address and port dialled
	Phases     Phases
	BytesSent  int64
	Body       []byte // excerpt of the response body, at most 16 KiB
	Truncated  bool   // Body is not all that came
}

// Attempt is the record of one try on the timeline.
type Attempt struct {
	Number    int // 1, 2 …; goes on counting over replays
	LeasedAt  time.Time
	StartedAt time.Time
	EndedAt   time.Time
	Lease     Lease
	Result    Result
	Outcome   Outcome
}

// TimelineEntry is one transition of a delivery.
type TimelineEntry struct {
	At      time.Time
	State   State
	Reason  Reason
	Lease   Lease
	Attempt *Attempt  // with StateAttempted
	Next    time.Time // with StateRetrying: when it is due again
	Note    string    // what it waited for, a changed URL, who asked; at most 512 bytes
}
