package protoselect

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// attempt is one call of Do.
type attempt struct {
	s     *Selector
	ep    delivery.Endpoint
	req   *delivery.Request
	plan  plan
	trace Trace
}

// Do sends the request over the protocol that the route's memory and policy
// choose and returns its answer. The error is a *delivery.SendError.
//
// The request is written once. It is written a second time, once, only when the
// first is proven not to have been processed: never sent, refused by the peer,
// 421 over HTTP/3 (RFC 9110 §15.5.20) or 425 (RFC 8470 §5.2). ctx bounds
// everything.
func (s *Selector) Do(ctx context.Context, ep delivery.Endpoint, policy delivery.ProtocolPolicy, req *delivery.Request) (*delivery.Response, Trace, error) {
	a := attempt{s: s, ep: ep, req: req}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, Trace{}, stoppedError()
	}
	a.plan = s.m.decide(time.Now(), ep.Route, policy)
	s.unlock()

	first, err := a.connect(ctx, policy)
	if err != nil {
		return nil, a.trace, a.distrusted(err)
	}
	resp, err := a.exchange(ctx, first)
	if why := a.resend(ctx, first, resp, err); why != ResendNone {
		resp, err = a.again(ctx, first, resp, err, why)
	}
	if err != nil {
		return nil, a.trace, a.distrusted(err)
	}
	return resp, a.trace, nil
}

func stoppedError() *delivery.SendError {
	return &delivery.SendError{Sent: delivery.SentNever, Cause: delivery.CauseShutdown, Detail: "selector stopped"}
}

// connect gets a connection as the plan says.
func (a *attempt) connect(ctx context.Context, policy delivery.ProtocolPolicy) (link, *delivery.SendError) {
	var answer <-chan struct{}
	if a.plan.ask {
		answer = a.s.ask(a.ep.Route)
	}
	if l, ok := a.warm(); ok {
		return l, nil
	}
	if a.plan.wait && answer != nil && !a.s.lookups.mute() {
		a.await(ctx, answer)
		a.s.mu.Lock()
		a.plan = a.s.m.decide(time.Now(), a.ep.Route, policy)
		a.s.unlock()
		if l, ok := a.warm(); ok {
			return l, nil
		}
	}
	return a.dial(ctx)
}

// warm takes a warm connection if the plan allows one now.
func (a *attempt) warm() (link, bool) {
	p := &a.plan
	a.trace.State = p.state
	if p.warmH3 {
		for i := range p.n {
			if conn, ok := a.s.dialer.Warm(a.ep, Want{HTTP3: true, Alternative: p.alts[i].alt}); ok {
				return link{conn: conn, h3: true, alt: p.alts[i]}, true
			}
		}
	}
	if p.kind != planTCP && p.kind != planWarmFirst {
		return link{}, false
	}
	conn, ok := a.s.dialer.Warm(a.ep, Want{TCP: p.tcp})
	if ok && p.probe {
		a.s.startQUIC(a.ep, p.alts[0], false)
	}
	return link{conn: conn}, ok
}

// await gives the HTTPS record its moment.
func (a *attempt) await(ctx context.Context, answer <-chan struct{}) {
	started := time.Now()
	timer := time.NewTimer(a.s.cfg.DNS.Wait)
	defer timer.Stop()
	select {
	case <-answer:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.trace.WaitedForDNS = time.Since(started)
}

// dial makes a connection: over TCP, by a race, or over HTTP/3 alone.
func (a *attempt) dial(ctx context.Context) (link, *delivery.SendError) {
	p := &a.plan
	switch p.kind {
	case planH3Only:
		return a.s.dialH3(ctx, a.ep, p.candidates())
	case planTCP:
		if p.probe {
			a.s.startQUIC(a.ep, p.alts[0], false)
		}
		return a.s.dialTCP(ctx, a.ep, p.tcp)
	}
	r := race{s: a.s, ep: a.ep, plan: *p, started: time.Now()}
	l, err := r.run(ctx)
	if r.loser != VerdictNone {
		a.trace.Stagger, a.trace.Loser, a.trace.LoserProtocol = p.stagger, r.loser, "tcp"
		if !l.h3 {
			a.trace.LoserProtocol = "h3"
		}
	}
	return l, err
}

// exchange writes the request on the connection and takes the outcome into the
// memory.
func (a *attempt) exchange(ctx context.Context, l link) (*delivery.Response, *delivery.SendError) {
	a.describe(l)
	a.req.AltUsed = ""
	if l.h3 {
		a.req.AltUsed = l.alt.altUsed
	}
	started := time.Now()
	resp, sendErr := l.conn.RoundTrip(ctx, a.req)
	if sendErr == nil {
		a.s.answered(a.ep.Route, l, resp)
		return resp, nil
	}
	err := roundTripError(sendErr)
	a.s.failed(a.ep.Route, l, err, started)
	return nil, err
}

// describe fills the trace for the connection that gets the request.
func (a *attempt) describe(l link) {
	t := &a.trace
	t.Protocol, t.Reused = l.conn.Protocol(), l.conn.Reused()
	t.Writes++
	h := l.conn.Handshake()
	t.Remote = h.Remote
	t.DNS, t.Connect, t.TLS, t.QUIC = 0, 0, 0, 0
	if !t.Reused {
		t.DNS, t.Connect, t.TLS, t.QUIC = h.DNS, h.Connect, h.TLS, h.QUIC
	}
	t.Alternative = ""
	if l.h3 {
		t.Alternative = l.alt.authority
	}
}

// roundTripError makes a *SendError of whatever came back. What nobody
// classified may have been processed.
func roundTripError(err error) *delivery.SendError {
	if se, ok := errors.AsType[*delivery.SendError](err); ok {
		return se
	}
	return &delivery.SendError{Sent: delivery.SentAmbiguous, Cause: delivery.CauseProtocol, Detail: "unclassified failure", Err: err}
}

// answered takes an answer into the memory.
func (s *Selector) answered(r delivery.Route, l link, resp *delivery.Response) {
	now := time.Now()
	s.mu.Lock()
	e := s.m.memory(r)
	misdirected := resp.Status == http.StatusMisdirectedRequest
	if l.h3 && misdirected {
		s.m.misdirected(now, r, l.alt.key)
	} else {
		s.m.answered(now, e, l.conn.Protocol(), l.alt.key)
	}
	if !misdirected { // RFC 7838 §6: Alt-Svc in a 421 is ignored
		s.m.altSvcSeen(now, e, r.Origin.Scheme == "https", resp.Header)
	}
	s.unlock()
	if lied(resp) {
		s.Distrust(r)
	}
}

// lied recognises a peer that says "not processed" about a request whose
// response it had begun.
func lied(resp *delivery.Response) bool {
	if resp.BodyErr == nil {
		return false
	}
	se, ok := errors.AsType[*delivery.SendError](resp.BodyErr)
	return ok && se.Sent == delivery.SentRefused
}

// failed takes a request without an answer into the memory.
func (s *Selector) failed(r delivery.Route, l link, err *delivery.SendError, started time.Time) {
	s.mu.Lock()
	if err.Sent == delivery.SentRefused {
		s.m.refused(r)
	}
	if l.h3 {
		s.m.requestFailed(time.Now(), r, l.alt.key, err.Broken, started, err.Detail)
	}
	s.unlock()
}
