package protoselect

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Observer is told what the selector sees and decides. Every func may be nil
// and is called without a lock held, from the goroutine of a delivery or of a
// dial: it must not block. Routes are for logs; they are no metric labels.
type Observer struct {
	// StateChanged: an alternative moved from one state to another.
	StateChanged func(StateChange)
	// Refused: policy does not allow an advertised alternative.
	Refused func(AlternativeRefused)
	// Raced: both sides of a race have their verdict.
	Raced func(Race)
	// Dialed: a connection attempt of the selector ended.
	Dialed func(Dial)
	// Resent: a request was written a second time inside its attempt.
	Resent func(Resend)
	// Egress: the breaker of an egress opened or closed.
	Egress func(EgressChange)
	// LookedUp: a lookup of an HTTPS record ended.
	LookedUp func(LookupResult)
	// Lied: a peer refused a request as unprocessed after evidence that it was
	// processing it; its refusals are not trusted any more.
	Lied func(delivery.Route)
	// MemoryFailed: saving or loading the memory failed; the selector goes on
	// with what it has.
	MemoryFailed func(error)
}

// StateChange is an alternative's move between states.
type StateChange struct {
	Route       delivery.Route
	Alternative string // host:port
	From, To    State
	Why         string
	Class       delivery.Broken // of the last breakage
	Breakages   int             // in a row
	Until       time.Time       // with StateBroken
}

// AlternativeRefused is an advertised alternative that policy does not allow.
type AlternativeRefused struct {
	Route       delivery.Route
	Alternative string // "" = the whole header
	Source      Source
	Rule        Refusal
}

// Verdict is how one side of a race, or a dial, ended. The names are a closed
// list and serve as metric labels.
type Verdict string

// Verdicts.
const (
	VerdictNone        Verdict = ""            // there was no such side
	VerdictUp          Verdict = "up"          // came up, and stays warm
	VerdictPending     Verdict = "pending"     // still running when the delivery went on
	VerdictNotStarted  Verdict = "not_started" // the other side won before the stagger was over
	VerdictTimeout     Verdict = "timeout"
	VerdictExplicit    Verdict = "explicit"
	VerdictCertificate Verdict = "certificate"
	VerdictFailed      Verdict = "failed"   // for a reason that is not the protocol's
	VerdictCanceled    Verdict = "canceled" // by us
)

// Race is a decided race between QUIC and TCP.
type Race struct {
	Route   delivery.Route
	Winner  delivery.Protocol // ProtocolNone = both failed
	Loser   Verdict           // the other side's, once it is in
	Stagger time.Duration
	Took    time.Duration // until the winner was up
}

// Dial is a connection attempt that ended.
type Dial struct {
	Route      delivery.Route
	QUIC       bool
	Background bool // nobody was waiting: a probe, or a side that lost
	Verdict    Verdict
	Took       time.Duration
	Err        error
}

// ResendReason is why a request was written a second time.
type ResendReason string

// Reasons of a resend. Nothing else ever causes a second write.
const (
	ResendNone        ResendReason = ""
	ResendNever       ResendReason = "never_sent"  // not a byte of the first left
	ResendRefused     ResendReason = "refused"     // the peer refused it as unprocessed
	ResendMisdirected ResendReason = "misdirected" // 421 over HTTP/3
	ResendTooEarly    ResendReason = "too_early"   // 425
)

// Resend is a second write of a request inside one attempt.
type Resend struct {
	Route  delivery.Route
	Reason ResendReason
	From   delivery.Protocol
	To     delivery.Protocol
	Class  delivery.Broken // what the first failure said about HTTP/3
}

// EgressChange is a change of an egress breaker.
type EgressChange struct {
	Egress string
	Open   bool
	Until  time.Time
}

func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}
