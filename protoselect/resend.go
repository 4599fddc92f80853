package protoselect

import (
	"context"
	"net/http"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// resend decides whether the request may be written once more inside this
// attempt: only with proof that it was not processed, and only when another
// connection can make a difference.
func (a *attempt) resend(ctx context.Context, l link, resp *delivery.Response, err *delivery.SendError) ResendReason {
	if ctx.Err() != nil {
		return ResendNone
	}
	if err == nil {
		switch {
		case resp.Status == http.StatusMisdirectedRequest && l.h3 && a.plan.kind != planH3Only:
			return ResendMisdirected
		case resp.Status == http.StatusTooEarly:
			// Our connections never carry early data, so only a confused hop
			// says this; but it says "not processed", and our handshake is
			// complete, so the one resend that RFC 8470 §5.2 asks for is safe.
			return ResendTooEarly
		}
		return ResendNone
	}
	switch err.Cause {
	case delivery.CauseShutdown, delivery.CauseLocal, delivery.CausePolicy, delivery.CausePolicyLiteral:
		return ResendNone // another connection changes nothing
	}
	switch {
	case err.Sent == delivery.SentNever:
		return ResendNever
	case err.Sent == delivery.SentRefused && !a.plan.distrust:
		return ResendRefused
	}
	return ResendNone
}

// again writes the request the second and last time. When no second connection
// can be had, the first outcome stands.
func (a *attempt) again(ctx context.Context, first link, resp *delivery.Response, err *delivery.SendError, why ResendReason) (*delivery.Response, *delivery.SendError) {
	from := a.trace.Protocol
	l, dialErr := a.other(ctx, first, why)
	if dialErr != nil {
		if err == nil {
			return resp, nil
		}
		return nil, bothErrors(err, dialErr)
	}
	before := a.trace
	a.trace.Fallback, a.trace.Resend = true, why
	note := Resend{Route: a.ep.Route, Reason: why, From: from, To: l.conn.Protocol()}
	if err != nil {
		note.Class = err.Broken
	}
	call(a.s.cfg.Observer.Resent, note)
	answer, second := a.exchange(ctx, l)
	switch {
	case second == nil:
		return answer, nil
	case err != nil:
		return nil, bothErrors(err, second)
	case second.Sent == delivery.SentNever:
		// Nothing came of the second write: the answer to the first one stands,
		// with its Retry-After and the connection that it came over.
		before.Fallback, before.Resend, before.Writes = true, why, a.trace.Writes
		a.trace = before
		return resp, nil
	}
	return nil, second
}

// other gets the connection for the second write: the other protocol where
// there is one, a new connection where there is not.
func (a *attempt) other(ctx context.Context, first link, why ResendReason) (link, *delivery.SendError) {
	p := &a.plan
	switch {
	case p.kind == planH3Only, first.h3 && why == ResendTooEarly:
		return a.againH3(ctx, first)
	case first.h3, why == ResendTooEarly:
		if conn, ok := a.s.dialer.Warm(a.ep, Want{TCP: p.tcp}); ok {
			return link{conn: conn}, nil
		}
		return a.s.dialTCP(ctx, a.ep, p.tcp)
	}
	if p.warmH3 {
		for i := range p.n {
			if conn, ok := a.s.dialer.Warm(a.ep, Want{HTTP3: true, Alternative: p.alts[i].alt}); ok {
				return link{conn: conn, h3: true, alt: p.alts[i]}, nil
			}
		}
	}
	// A warm connection that just failed may have sisters from the same dead
	// server: the second try gets a connection of its own.
	fresh := p.tcp
	fresh.Fresh = true
	return a.s.dialTCP(ctx, a.ep, fresh)
}

// againH3 repeats over HTTP/3: after 425 the same connection will do.
func (a *attempt) againH3(ctx context.Context, first link) (link, *delivery.SendError) {
	if conn, ok := a.s.dialer.Warm(a.ep, Want{HTTP3: true, Alternative: first.alt.alt}); ok {
		return link{conn: conn, h3: true, alt: first.alt}, nil
	}
	return a.s.dialH3(ctx, a.ep, []candidate{first.alt})
}

// distrusted hands an error out. A refusal of an origin that lied before proves
// nothing: to everybody above it is ambiguous.
func (a *attempt) distrusted(err *delivery.SendError) error {
	if err.Sent != delivery.SentRefused || !a.plan.distrust {
		return err
	}
	out := *err
	out.Sent = delivery.SentAmbiguous
	out.Detail = joinDetail(err.Detail, "refusals of this origin are not trusted")
	return &out
}

// bothErrors is the second failure with the first one's story. Neither write
// was processed unless the second is ambiguous.
func bothErrors(first, second *delivery.SendError) *delivery.SendError {
	out := *second
	if second.Sent == delivery.SentNever {
		out.Sent = first.Sent
	}
	out.Detail = joinDetail(second.Detail, "before that: "+first.Detail)
	return &out
}

const maxDetail = 512

func joinDetail(a, b string) string {
	s := a + "; " + b
	if len(s) > maxDetail {
		s = s[:maxDetail]
	}
	return s
}
