package ingress

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// makeMessage gives the event its identity.
func (x *exchange) makeMessage() verdict {
	b, s := x.content(), x.source
	body := b.body()
	x.id = s.identify(x.r.Header, body)
	x.message = &Message{
		Tenant: x.tenant, Source: x.name, Destination: s.Destination,
		ID: eventID(x.name, x.id.id), Topic: x.id.topic,
		ContentType: contentType(x.r.Header), Headers: s.forwarded(x.r.Header),
		TraceParent: x.r.Header.Get("Traceparent"), Body: body, Digest: b.sum(), DedupeBody: x.id.useBody, ReceivedAt: x.start,
	}
	return verdict{}
}

// checkQuota takes the event out of the source's bucket and the tenant's. Over
// quota it is accepted all the same, and processed as fast as the quota allows,
// unless the source rejects: a provider that is turned away for long gives up.
func (x *exchange) checkQuota() verdict {
	limits := [...]struct {
		key   QuotaKey
		limit delivery.RateLimit
	}{
		{QuotaKey{x.tenant, x.name}, x.source.RateLimit.limit()},
		{QuotaKey{Tenant: x.tenant}, x.in.tenantQuota.Load().limit()},
	}
	var wait time.Duration
	for _, l := range limits {
		if l.limit.PerSecond == 0 {
			continue
		}
		r, err := x.in.quota.Reserve(x.r.Context(), l.key, l.limit)
		if err != nil {
			x.in.sampled.warn("quota_unknown", "tenant", x.tenant, "error", err.Error())
			continue
		}
		x.quota = append(x.quota, r)
		wait = max(wait, r.Wait)
	}
	if wait == 0 {
		return verdict{}
	}
	if x.source.RejectOverQuota {
		x.refund()
		return verdict{outcome: OutcomeOverQuota, retryAfter: wait}
	}
	x.message.NotBefore = x.message.ReceivedAt.Add(wait)
	return verdict{}
}

// refund puts the event back into its buckets.
func (x *exchange) refund() {
	for _, r := range x.quota {
		r.cancel()
	}
	x.quota = nil
}

var errEnqueueTimeout = errors.New("storing took too long")

// enqueue makes the event durable, or finds that it is. The sender's leaving
// changes nothing: it will send again, and that is then a duplicate.
func (x *exchange) enqueue() verdict {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(x.r.Context()), x.in.cfg.EnqueueTimeout, errEnqueueTimeout)
	defer cancel()
	receipt, err := x.in.enqueuer.Enqueue(ctx, x.message)
	if errors.Is(err, delivery.ErrConflict) {
		receipt, err = x.resolve(ctx)
	}
	switch {
	case err == nil && receipt.Deduplicated:
		x.refund() // a duplicate costs no quota
		return verdict{outcome: OutcomeDeduplicated, id: receipt.ID}
	case err == nil:
		return verdict{outcome: OutcomeBuffered, id: receipt.ID}
	}
	x.refund()
	switch {
	case errors.Is(err, delivery.ErrStoreFull):
		return verdict{outcome: OutcomeStoreFull, err: err}
	case errors.Is(err, delivery.ErrNoTenant) || errors.Is(err, ErrUnknownSource):
		return refuse(OutcomeUnknownSource) // deleted since it was looked up
	default:
		return verdict{outcome: OutcomeStoreFailed, err: err}
	}
}

// resolve handles an id that was accepted before with another body. If the
// signature covers the id, the provider itself says that it is the same event:
// retries may differ, as Stripe's count of pending deliveries does. If not, the
// header proves nothing while the body is genuine: dropping it could lose an
// event, so it is stored under an id of its own, which repeats with it.
func (x *exchange) resolve(ctx context.Context) (Receipt, error) {
	if x.id.signed {
		return Receipt{ID: x.message.ID, Deduplicated: true}, nil
	}
	apart := *x.message
	apart.ID = eventID(x.name, x.id.id+":"+hex.EncodeToString(x.message.Digest[:8]))
	return x.in.enqueuer.Enqueue(ctx, &apart)
}
