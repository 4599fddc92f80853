package protoselect

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Trace tells how one attempt was carried, for the attempt's record.
type Trace struct {
	Protocol delivery.Protocol // of the connection that carried the last write; none = no connection
	Reused   bool              // it was warm
	// Fallback: the request was written a second time, or a second connection
	// was made for it, after proof that the first was not processed.
	Fallback bool
	Resend   ResendReason
	// Loser is the verdict of the side that lost the race as far as it is known
	// when the attempt ends; the observer gets the final one.
	Loser         Verdict
	LoserProtocol string        // "h3" or "tcp" when Loser is set
	State         State         // of the best alternative when the attempt began
	Alternative   string        // authority of the alternative used, "" = none
	Stagger       time.Duration // of the race, if there was one
	WaitedForDNS  time.Duration // for the HTTPS record, at most Config.DNS.Wait
	// Handshake of the connection when it was not warm; Remote always.
	DNS     time.Duration
	Connect time.Duration
	TLS     time.Duration
	QUIC    time.Duration
	Remote  string
	// Writes is how many times the request was handed to a connection: 0 to 2.
	Writes int
}

// RaceLoser is the loser's verdict in one word for the attempt's record, like
// "h3:timeout"; "" = no race.
func (t Trace) RaceLoser() string {
	if t.Loser == VerdictNone {
		return ""
	}
	return t.LoserProtocol + ":" + string(t.Loser)
}

// Fill copies the trace into an attempt's result.
func (t Trace) Fill(r *delivery.Result) {
	r.Protocol, r.Reused, r.Fallback = t.Protocol, t.Reused, t.Fallback
	r.RaceLoser, r.Remote = t.RaceLoser(), t.Remote
	r.Phases.DNS, r.Phases.Connect, r.Phases.TLS, r.Phases.QUIC = t.DNS, t.Connect, t.TLS, t.QUIC
}
