package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// originPrefix begins the ids of the subscribers that are origins of sources.
// They are made, changed and removed with their source, and by nobody else.
const originPrefix = "origin-"

// Policy of an origin.
const (
	originConcurrency = 100              // two batches: one under way, one gathering
	originTimeout     = 30 * time.Second // of one request
	originMaxAge      = 72 * time.Hour
	originAttempts    = 1000 // more than fit into originMaxAge: age decides
)

// originTopic is one that nobody can publish: an origin gets events by name only.
const originTopic = delivery.OperationalPrefix + "origin"

func originID(source string) string { return originPrefix + source }

func isOrigin(subscriber string) bool { return strings.HasPrefix(subscriber, originPrefix) }

// originOnly refuses what only the source may do to its origin.
func originOnly(subscriber string) error {
	if !isOrigin(subscriber) {
		return nil
	}
	source := strings.TrimPrefix(subscriber, originPrefix)
	return &ConflictError{
		Field: "id", Value: clipped(subscriber), Rule: fmt.Sprintf("this subscriber is the origin of the source %q", clipped(source)),
		Hint: "change the source: PUT or DELETE …/sources/" + clipped(source),
	}
}

// putOrigin makes the subscriber of a source's origin, or changes it. A new
// destination enables an origin that the dispatcher had disabled; one that an
// operator paused stays paused.
func (e *Engine) putOrigin(t *delivery.Tenant, source string, d *ingress.Destination) (*delivery.Subscriber, error) {
	id, headers, material := originID(source), originHeaders(d), d.Material()
	old, err := e.registry.GetSubscriber(t.Num, id)
	switch {
	case errors.Is(err, delivery.ErrNoSubscriber):
		made, err := e.registry.CreateSubscriber(&delivery.Subscriber{
			Tenant: t.Num, ID: id, URL: d.URL, TLS: material, Topics: []string{originTopic}, Headers: headers, Ordering: delivery.OrderingNone,
			Concurrency: originConcurrency, Timeout: originTimeout, DisableAfter: delivery.DefaultDisableAfter,
			Retry: delivery.Retry{
				Base: time.Second, Factor: 2, Max: 5 * time.Minute, Attempts: originAttempts, MaxAge: originMaxAge,
			},
			Priority: delivery.PriorityNormal,
		})
		if err != nil {
			return nil, e.registryFault("source", source, err)
		}
		return made, nil
	case err != nil:
		return nil, e.registryFault("source", source, err)
	case old.URL == d.URL && maps.Equal(old.Headers, headers) && old.TLS.Equal(material):
		return old, nil
	}
	changed, err := e.registry.UpdateSubscriber(old.Num, storage.AnyVersion, func(s *delivery.Subscriber) error {
		s.URL, s.Headers, s.TLS = d.URL, headers, material
		if s.Status == delivery.SubscriberDisabled {
			s.Status, s.StatusReason = delivery.SubscriberActive, delivery.ReasonNone
		}
		return nil
	})
	if err != nil {
		return nil, e.registryFault("source", source, err)
	}
	e.sched.Kick(changed.Num)
	return changed, nil
}

func originHeaders(d *ingress.Destination) map[string]string {
	if d.Token.IsZero() {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + d.Token.Reveal()}
}

// removeOrigin deletes the subscriber of a source's origin and reports whether
// there was one.
func (e *Engine) removeOrigin(t *delivery.Tenant, source string) (bool, error) {
	num, err := e.registry.DeleteSubscriber(t.Num, originID(source), storage.AnyVersion)
	if errors.Is(err, delivery.ErrNoSubscriber) {
		return false, nil
	}
	if err != nil {
		return false, e.registryFault("source", source, err)
	}
	e.sched.Forget(num)
	e.cleaner.kick()
	return true, nil
}

// eventHeaders puts the headers that go on with an event onto its request,
// unless the sender, the subscriber or its signature has the name already.
func (p *prepared) eventHeaders(to headerList, event *delivery.Event) headerList {
	before := slices.Clip(to) // values of the same name in the event stand side by side
	for _, h := range event.Headers {
		if !signing.ReservedHeader(h.Name) && !p.signer.OwnsHeader(h.Name) && !before.has(h.Name) {
			to = append(to, h)
		}
	}
	return to
}
