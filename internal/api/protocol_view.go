package api

import (
	"encoding/hex"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

func originOut(row engine.ProtocolRow) Origin {
	out := Origin{
		Origin: row.Route.Origin.Authority(), Scheme: row.Route.Origin.Scheme, Egress: row.Route.Egress, State: row.State.String(), Pin: pinOut(row.Pin),
		Alternatives: mapped(row.Alternatives, alternativeOut), TCPRTTMillis: millis(row.TCPRTT), HTTPSRecord: row.HTTPSRecord,
		Attempts: ByProtocol{H1: row.HTTP1, H2: row.HTTP2, H3: row.HTTP3}, Refusals: row.Refusals, Distrusted: row.Distrusted,
	}
	if id := row.Route.Identity; id != (delivery.Identity{}) {
		out.Identity = hex.EncodeToString(id[:])
	}
	return out
}

func alternativeOut(a engine.AlternativeRow) Alternative {
	out := Alternative{
		Authority: a.Authority, State: a.State.String(), Source: a.Source.String(), ExpiresAt: rfc3339(a.ExpiresAt),
		ConfirmedAt: rfc3339(a.ConfirmedAt), BrokenReason: a.Reason, BrokenUntil: rfc3339(a.BrokenUntil), Breakages: a.Breakages,
		RTTMillis: millis(a.SRTT), Wins: a.Wins, Losses: a.Losses, Answers: a.Answers, Failures: a.Failures,
	}
	if a.Class != delivery.BrokenNot {
		out.BrokenClass = a.Class.String()
	}
	return out
}

// pinOut returns nil where there is no pin.
func pinOut(p engine.ProtocolPin) *Pin {
	if p == (engine.ProtocolPin{}) {
		return nil
	}
	return &Pin{Protocol: p.Protocol.String(), Until: rfc3339(p.Until)}
}

func probeOut(r engine.ProbeResult) Probe {
	return Probe{HTTPSRecord: r.HTTPSRecord.String(), TCP: probedOut(r.TCP), HTTP3: mapped(r.HTTP3, probedOut)}
}

func probedOut(d engine.ProbeDial) ProbedDial {
	return ProbedDial{
		Authority: d.Authority, Protocol: d.Protocol.String(), Verdict: string(d.Verdict), Detail: d.Detail,
		TookMillis: millis(d.Took), Reused: d.Reused, Remote: d.Handshake.Remote,
	}
}
