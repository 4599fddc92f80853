package ingress

import (
	"context"
	"errors"
	"time"
)

// receiveBody reads the body, once, before a deadline.
func (x *exchange) receiveBody() verdict {
	if !x.admit() {
		return refuse(OutcomeBusy)
	}
	// Every server sets deadlines; a recorder in a test does not.
	_ = x.conn.SetReadDeadline(time.Now().Add(x.in.cfg.BodyTimeout))
	x.received = x.receiver()
	if x.encoding == encodingNone && !x.source.verifier.Buffers() {
		x.received.check = x.check
	}
	err := x.received.readAll(x.r.Context(), x.r.Body)
	if err == nil {
		// What follows may take long, and must not end because the deadline for
		// reading passes meanwhile.
		_ = x.conn.SetReadDeadline(time.Time{})
	}
	return bodyVerdict(err, OutcomeBodyBroken)
}

// admit takes a place among the bodies that are received.
func (x *exchange) admit() bool {
	if !x.in.bodies.take(1) {
		return false
	}
	x.admitted = 1
	if !x.in.senders.enter(x.client) {
		return false
	}
	x.admitted = 2
	return true
}

func (x *exchange) receiver() *receiver {
	b := &receiver{
		limit: x.source.maxBody, inRAM: x.in.cfg.MemoryBody,
		spool: x.in.spool, memory: &x.in.memory, disk: &x.in.disk,
	}
	if x.source.verifier.Buffers() {
		b.inRAM = b.limit
	}
	return b
}

// bodyVerdict says what an error of a receiver means; broken is the outcome of
// errors that the body itself caused.
func bodyVerdict(err error, broken Outcome) verdict {
	switch {
	case err == nil:
		return verdict{}
	case errors.Is(err, errTooLarge) || bomb(err):
		return refuse(OutcomeTooLarge)
	case errors.Is(err, errBusy):
		return refuse(OutcomeBusy)
	case errors.Is(err, errSpool):
		return verdict{outcome: OutcomeStoreFailed, err: err}
	case timedOut(err):
		return refuse(OutcomeBodyTimeout)
	default:
		return refuse(broken)
	}
}

// expandBody expands a compressed body, of which all has arrived: a sender that
// trickles never holds a decoder. What was compressed is dropped then.
func (x *exchange) expandBody() verdict {
	if x.encoding == encodingNone {
		return verdict{}
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.in.cfg.BodyTimeout)
	defer cancel()
	select {
	case x.in.decoders <- struct{}{}:
		defer func() { <-x.in.decoders }()
	case <-ctx.Done():
		return refuse(OutcomeBusy)
	}
	x.expanded = x.receiver()
	if !x.source.verifier.Buffers() {
		x.expanded.check = x.check
	}
	return bodyVerdict(x.expand(ctx), OutcomeBadEncoding)
}

func (x *exchange) expand(ctx context.Context) (err error) {
	in, err := expander(x.encoding, x.received.body().Reader())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return x.expanded.readAll(ctx, in)
}

// content is the body as it is signed and stored.
func (x *exchange) content() *receiver {
	if x.expanded != nil {
		return x.expanded
	}
	return x.received
}

func (x *exchange) finishSignature() verdict {
	var err error
	if data, ok := x.content().body().Bytes(); ok && x.source.verifier.Buffers() {
		err = x.check.FinishBody(data)
	} else {
		err = x.check.Finish()
	}
	if err != nil {
		return unverifiedBy(err)
	}
	return verdict{}
}

// answerHandshake answers a provider that only tries out the URL. It is verified,
// as providers sign these too, and is no event.
func (x *exchange) answerHandshake() verdict {
	data, ok := x.content().body().Bytes()
	if !ok {
		return verdict{}
	}
	if reply, ok := x.source.verifier.Handshake(data); ok {
		return verdict{outcome: OutcomeHandshake, reply: &reply}
	}
	return verdict{}
}
