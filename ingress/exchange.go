package ingress

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// exchange is one request on its way through the checks. It belongs to the
// goroutine of its handler.
type exchange struct {
	in    *Ingress
	w     http.ResponseWriter
	r     *http.Request
	conn  *http.ResponseController
	start time.Time

	client   netip.Addr
	tenant   string
	name     string // of the source
	source   *prepared
	encoding string // of the body, as received

	check    *signing.Check
	received *receiver // nil before the body is read
	expanded *receiver // nil unless it was compressed
	admitted int       // places it has among the bodies: 1 of the node, 2 also of its client

	id      identity
	message *Message
	quota   []Reservation
}

// verdict is what a check says. The zero value lets the request go on.
type verdict struct {
	outcome    Outcome
	detail     string // for the sender; "" = the outcome's own
	id         string // public event id
	reply      *signing.Reply
	retryAfter time.Duration
	err        error // for the log
}

func (v verdict) decided() bool { return v.outcome != outcomeNone }

func refuse(o Outcome) verdict { return verdict{outcome: o} }

// checks are in the order of their cost. Nothing is parsed before it is verified,
// and what a check costs is only paid by requests that passed those before it.
var checks = [...]func(*exchange) verdict{
	// Of the request line and the length: no look-up, no memory.
	(*exchange).checkMethod,
	(*exchange).checkPath,
	(*exchange).checkDeclaredLength,
	(*exchange).checkFailures,
	// Of the source: one look-up in memory.
	(*exchange).findSource,
	(*exchange).checkSourceLimits,
	(*exchange).checkReady,
	// Of the headers: what the scheme says before the body.
	(*exchange).beginSignature,
	// Of the body: its transfer, then its signature.
	(*exchange).receiveBody,
	(*exchange).expandBody,
	(*exchange).finishSignature,
	// Of a genuine event.
	(*exchange).answerHandshake,
	(*exchange).makeMessage,
	(*exchange).checkQuota,
}

// ServeHTTP is the ingress as a handler, without its listeners.
func (in *Ingress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{in: in, w: w, r: r, conn: http.NewResponseController(w), start: time.Now()}
	in.inFlight.enter()
	defer in.inFlight.leave()
	defer x.close()
	v := x.run()
	if v.outcome.unverified() {
		in.failures.charge(x.tenant, x.client, time.Now())
	}
	status := x.answer(v)
	in.report(x, v, status)
}

func (x *exchange) run() verdict {
	for _, check := range checks {
		if v := check(x); v.decided() {
			return v
		}
	}
	return x.enqueue()
}

// close gives back what the exchange holds.
func (x *exchange) close() {
	for _, b := range []*receiver{x.received, x.expanded} {
		if b == nil {
			continue
		}
		if err := b.close(); err != nil {
			x.in.sampled.warn("spool_file_not_removed", "error", err.Error())
		}
	}
	if x.admitted > 0 {
		x.in.bodies.give(1)
	}
	if x.admitted > 1 {
		x.in.senders.leave(x.client)
	}
}

func (x *exchange) protocol() delivery.Protocol {
	switch x.r.ProtoMajor {
	case 3:
		return delivery.ProtocolHTTP3
	case 2:
		return delivery.ProtocolHTTP2
	default:
		return delivery.ProtocolHTTP1
	}
}

// report tells observer and log about an answered request.
func (in *Ingress) report(x *exchange, v verdict, status int) {
	a := Answered{
		Outcome: v.outcome, Status: status, Protocol: x.protocol(), Tenant: x.tenant, Source: x.name,
		Client: x.client, Took: time.Since(x.start), Err: v.err,
	}
	if x.source != nil {
		a.Scheme = x.source.Scheme
	}
	if x.received != nil {
		a.Bytes, a.Spooled = x.received.size, x.received.spooled > 0
	}
	if x.message != nil && !x.message.NotBefore.IsZero() {
		a.Delayed = x.message.NotBefore.Sub(x.message.ReceivedAt)
	}
	in.cfg.Observer.answered(a)
	if status >= http.StatusInternalServerError && v.err != nil {
		in.sampled.warn("ingress_failed", "outcome", v.outcome.String(), "tenant", x.tenant, "source", x.name, "error", v.err.Error())
	}
	if ctx := context.Background(); in.log.Enabled(ctx, levelRequest) {
		in.log.Log(ctx, levelRequest, "ingress_request", "outcome", v.outcome.String(), "status", status, "tenant", x.tenant, //nolint:sloglint // one line per request, at debug
			"source", x.name, "client", x.client.String(), "bytes", a.Bytes, "took", a.Took)
	}
}
