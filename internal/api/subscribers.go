package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// SubscriberPath names a subscriber in a path.
type SubscriberPath struct {
	TenantPath
	ID string `path:"id" doc:"subscriber id" maxLength:"128" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"letters, digits, _ and - alone"`
}

// subscriberBody is a new subscriber or a patch: what is absent keeps its value
// or default.
type subscriberBody struct {
	ID                   *string            `json:"id,omitempty" maxLength:"128" doc:"chosen by you; made if absent; fixed once made"`
	URL                  *string            `json:"url,omitempty" maxLength:"4096" doc:"where to deliver; https"`
	Topics               *[]string          `json:"topics,omitempty" doc:"patterns; a trailing * matches one or more segments; default [\"*\"]"`
	Secret               *string            `json:"secret,omitempty" doc:"of the first signing scheme; made if absent; write-only"`
	TLS                  *tlsBody           `json:"tls,omitempty" doc:"own CA and client certificate; {} removes them"`
	Signing              *[]signingBody     `json:"signing,omitempty" doc:"one or two schemes; default standard"`
	Headers              *map[string]string `json:"headers,omitempty" doc:"extra headers; values are write-only"`
	Ordering             *string            `json:"ordering,omitempty" enum:"key,strict,none" doc:"default key"`
	Concurrency          *int               `json:"concurrency,omitempty" doc:"attempts in flight; default 8"`
	Reserved             *int               `json:"reserved_in_flight,omitempty" doc:"attempts in flight that nobody else can take, of concurrency; default 0"`
	RateLimit            *RateLimit         `json:"rate_limit,omitempty" doc:"default none"`
	Retry                *retryBody         `json:"retry,omitempty" doc:"default: the schedule 5s 5m 30m 2h 5h 10h 14h 20h 24h"`
	GiveUpAfter          *int               `json:"give_up_after,omitempty" doc:"attempts after which a failing delivery is dead; 0 = the ladder's end"`
	DisableAfter         *Duration          `json:"disable_after,omitempty" doc:"failing for this long disables it; default 120h"`
	DisableAfterFailures *int               `json:"disable_after_failures,omitempty" doc:"failures in a row that disable it; 0 = off"`
	Timeout              *Duration          `json:"timeout,omitempty" doc:"one attempt; default 15s"`
	Protocol             *string            `json:"protocol,omitempty" enum:"auto,h3,tcp,h2,h1" doc:"default auto"`
	Priority             *string            `json:"priority,omitempty" enum:"normal,high,low" doc:"default normal"`
	Enabled              *bool              `json:"enabled,omitempty" doc:"false holds its deliveries"`
}

type tlsBody struct {
	CAPEM         string `json:"ca_pem,omitempty" doc:"CA certificates to trust instead of the system's"`
	ClientCertPEM string `json:"client_cert_pem,omitempty" doc:"client certificate"`
	ClientKeyPEM  string `json:"client_key_pem,omitempty" doc:"its key; write-only"`
}

type signingBody struct {
	Scheme string `json:"scheme" enum:"standard,standard-ed25519,github,stripe,shopify,slack,hmac-hex,hmac-base64" doc:"how it is signed"`
	Secret string `json:"secret,omitempty" doc:"made if absent; write-only"`
	Header string `json:"header,omitempty" doc:"name of the signature header, where the scheme lets one choose"`
}

type retryBody struct {
	Schedule []Duration `json:"schedule,omitempty" doc:"waits after attempt 1, 2 …, each with 10 % jitter"`
	Base     Duration   `json:"base,omitempty" doc:"instead of schedule: first ceiling of exponential growth with full jitter"`
	Factor   float64    `json:"factor,omitempty" doc:"growth; default 2"`
	Max      Duration   `json:"max,omitempty" doc:"ceiling of one wait; default 24h"`
	Attempts int        `json:"attempts,omitempty" doc:"attempts in all with base; default 10"`
	MaxAge   Duration   `json:"max_age,omitempty" doc:"dead (expired) after this age; default 96h"`
}

func (b *subscriberBody) input() engine.SubscriberInput {
	in := engine.SubscriberInput{
		ID: b.ID, URL: b.URL, Topics: b.Topics, Secret: b.Secret, Headers: b.Headers, Ordering: b.Ordering,
		Concurrency: b.Concurrency, Reserved: b.Reserved, GiveUpAfter: b.GiveUpAfter, DisableAfterFailures: b.DisableAfterFailures,
		Protocol: b.Protocol, Priority: b.Priority, Enabled: b.Enabled,
		DisableAfter: durationPtr(b.DisableAfter), Timeout: durationPtr(b.Timeout),
	}
	if b.TLS != nil {
		in.TLS = &delivery.TLSMaterial{CAPEM: []byte(b.TLS.CAPEM), ClientCertPEM: []byte(b.TLS.ClientCertPEM), ClientKeyPEM: []byte(b.TLS.ClientKeyPEM)}
	}
	if b.Signing != nil {
		list := make([]engine.SigningInput, len(*b.Signing))
		for i, e := range *b.Signing {
			list[i] = engine.SigningInput{Scheme: e.Scheme, Secret: e.Secret, Header: e.Header}
		}
		in.Signing = &list
	}
	if b.RateLimit != nil {
		in.RateLimit = &delivery.RateLimit{PerSecond: b.RateLimit.PerSecond, Burst: b.RateLimit.Burst}
	}
	if b.Retry != nil {
		in.Retry = &delivery.Retry{
			Schedule: durations(b.Retry.Schedule), Base: durationOf(b.Retry.Base), Factor: b.Retry.Factor,
			Max: durationOf(b.Retry.Max), Attempts: b.Retry.Attempts, MaxAge: durationOf(b.Retry.MaxAge),
		}
	}
	return in
}

type rotateBody struct {
	Scheme string   `json:"scheme,omitempty" doc:"which of the signing list; default the first"`
	Secret string   `json:"secret,omitempty" doc:"the new one; made if absent; write-only"`
	Keep   Duration `json:"keep,omitempty" doc:"how long the old one stays valid; default 24h"`
}

type (
	newSubscriber struct {
		TenantPath
		Body subscriberBody
	}
	patchSubscriber struct {
		SubscriberPath
		Body subscriberBody
	}
	rotateSecret struct {
		SubscriberPath
		Body *rotateBody
	}
	replaySubscriber struct {
		SubscriberPath
		Body *replayBody
	}
	subscriberList struct {
		TenantPath
		PageQuery
	}
)

const subscribersPath = "/v1/tenants/{tenant}/subscribers"

func (s *Server) registerSubscribers() {
	create := operation(http.MethodPost, subscribersPath, "create-subscriber", "Register an endpoint; the answer alone shows its secret", http.StatusCreated, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, create, func(ctx context.Context, in *newSubscriber) (*bodyOf[Subscriber], error) {
		sub, err := s.node.CreateSubscriber(ctx, in.Tenant, in.Body.input())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return &bodyOf[Subscriber]{Status: http.StatusCreated, Body: withSecrets(subscriberOut(sub), sub)}, nil
	})
	list := operation(http.MethodGet, subscribersPath, "list-subscribers", "List a tenant's subscribers", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, list, func(ctx context.Context, in *subscriberList) (*pageOf[Subscriber], error) {
		rows, next, err := s.node.ListSubscribers(ctx, in.Tenant, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, subscriberOut), next), nil
	})
	get := operation(http.MethodGet, subscribersPath+"/{id}", "get-subscriber", "Show a subscriber with its health", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *SubscriberPath) (*bodyOf[Subscriber], error) {
		sub, status, err := s.node.GetSubscriber(ctx, in.Tenant, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(withHealth(subscriberOut(sub), status)), nil
	})
	patch := operation(http.MethodPatch, subscribersPath+"/{id}", "patch-subscriber", "Change the given fields", http.StatusOK, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, patch, func(ctx context.Context, in *patchSubscriber) (*bodyOf[Subscriber], error) {
		sub, err := s.node.UpdateSubscriber(ctx, in.Tenant, in.ID, in.Body.input())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(subscriberOut(sub)), nil
	})
	remove := operation(http.MethodDelete, subscribersPath+"/{id}", "delete-subscriber", "Delete a subscriber; pending deliveries are canceled", http.StatusNoContent, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, remove, func(ctx context.Context, in *SubscriberPath) (*struct{}, error) {
		if err := s.node.DeleteSubscriber(ctx, in.Tenant, in.ID); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
	s.registerSubscriberActions()
}

func (s *Server) registerSubscriberActions() {
	act := func(verb, summary string, do func(context.Context, string, string) (*delivery.Subscriber, error)) {
		op := operation(http.MethodPost, subscribersPath+"/{id}/"+verb, verb+"-subscriber", summary, http.StatusOK, http.StatusNotFound)
		huma.Register(s.api, op, func(ctx context.Context, in *SubscriberPath) (*bodyOf[Subscriber], error) {
			sub, err := do(ctx, in.Tenant, in.ID)
			if err != nil {
				return nil, problemFor(err, s.logger)
			}
			return ok(subscriberOut(sub)), nil
		})
	}
	act("pause", "Hold what is pending and what comes", s.node.PauseSubscriber)
	act("resume", "Deliver again, also after it was disabled", s.node.ResumeSubscriber)

	rotate := operation(http.MethodPost, subscribersPath+"/{id}/rotate-secret", "rotate-secret", "Make a new secret; the old one stays valid for a while", http.StatusOK, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, rotate, func(ctx context.Context, in *rotateSecret) (*bodyOf[Subscriber], error) {
		body := orZero(in.Body)
		sub, err := s.node.RotateSecret(ctx, in.Tenant, in.ID, engine.RotateInput{
			Scheme: body.Scheme, Secret: body.Secret, Keep: durationOf(body.Keep),
		})
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(withNewSecret(subscriberOut(sub), sub, body.Scheme)), nil
	})
	test := operation(http.MethodPost, subscribersPath+"/{id}/test", "test-subscriber", "Send one test event to this subscriber", http.StatusAccepted, http.StatusNotFound)
	huma.Register(s.api, test, func(ctx context.Context, in *SubscriberPath) (*bodyOf[Receipt], error) {
		r, err := s.node.TestSubscriber(ctx, in.Tenant, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return &bodyOf[Receipt]{Status: http.StatusAccepted, Body: receiptOut(r)}, nil
	})
	replay := operation(http.MethodPost, subscribersPath+"/{id}/replay", "replay-subscriber", "Replay this subscriber's dead letters", http.StatusAccepted, http.StatusNotFound)
	huma.Register(s.api, replay, func(ctx context.Context, in *replaySubscriber) (*bodyOf[ReplayAnswer], error) {
		input, err := orZero(in.Body).input()
		if err != nil {
			return nil, err
		}
		r, err := s.node.ReplaySubscriber(ctx, in.Tenant, in.ID, input)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return &bodyOf[ReplayAnswer]{Status: http.StatusAccepted, Body: ReplayAnswer{Replayed: r.Replayed, NextCursor: r.Cursor}}, nil
	})
}
