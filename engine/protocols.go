package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// What the selector tells operators, under the engine's name: the API knows
// the engine alone.
type (
	// ProtocolRow is what is known about one route of an origin.
	ProtocolRow = protoselect.OriginRow
	// AlternativeRow is what is known about one HTTP/3 alternative.
	AlternativeRow = protoselect.AlternativeRow
	// ProtocolPin is an operator's word about one origin.
	ProtocolPin = protoselect.Pin
	// ProbeResult is what a probe of an origin found.
	ProbeResult = protoselect.ProbeResult
	// ProbeDial is one handshake of a probe.
	ProbeDial = protoselect.ProbeDial
)

const (
	maxPin       = 365 * 24 * time.Hour
	probeTimeout = 15 * time.Second
)

// Protocols returns a page of what is known about origins.
func (e *Engine) Protocols(_ context.Context, page Page) ([]ProtocolRow, string, error) {
	rows, next := e.selector.List(page.Cursor, page.limit())
	return rows, next, nil
}

// Protocol returns what is known about one origin, a row per TLS identity and
// egress, and its pin. An authority names its https and its http origin alike;
// there is nothing to pin about the latter.
func (e *Engine) Protocol(_ context.Context, authority string) ([]ProtocolRow, ProtocolPin, error) {
	origin, err := protocolOrigin(authority)
	if err != nil {
		return nil, ProtocolPin{}, err
	}
	rows, pin := e.selector.Get(origin)
	plain, _ := e.selector.Get(overHTTP(origin))
	rows = append(rows, plain...)
	if len(rows) == 0 && pin.Protocol == protoselect.PinNone {
		return nil, pin, fmt.Errorf("origin %q: %w: nothing is known about it and it has no pin", clipped(authority), ErrNotFound)
	}
	return rows, pin, nil
}

// PinProtocol pins an origin to h3, tcp or auto; ttl 0 = until it is forgotten.
func (e *Engine) PinProtocol(_ context.Context, authority, protocol string, ttl time.Duration) (ProtocolPin, error) {
	origin, err := protocolOrigin(authority)
	if err != nil {
		return ProtocolPin{}, err
	}
	var f faults
	pin, ok := protoselect.ParsePin(protocol)
	if !ok {
		f.add("protocol", protocol, "one of h3, tcp, auto", `"auto" lets the selector decide`)
	}
	if ttl != 0 {
		f.span("ttl", ttl, time.Second, maxPin)
	}
	if err := f.err(); err != nil {
		return ProtocolPin{}, err
	}
	if err := e.selector.Pin(origin, pin, ttl); err != nil {
		return ProtocolPin{}, &UnavailableError{Reason: err.Error(), RetryAfter: unavailableRetry}
	}
	_, stored := e.selector.Get(origin)
	e.logger.Info("protocol_pinned", "origin", origin.Authority(), "protocol", pin.String(), "ttl", ttl)
	return stored, nil
}

// ForgetProtocol removes what is known about an origin, its pin included.
func (e *Engine) ForgetProtocol(_ context.Context, authority string) error {
	origin, err := protocolOrigin(authority)
	if err != nil {
		return err
	}
	known := e.selector.Forget(origin)
	if known = e.selector.Forget(overHTTP(origin)) || known; !known {
		return fmt.Errorf("origin %q: %w: nothing is known about it", clipped(authority), ErrNotFound)
	}
	e.logger.Info("protocol_forgotten", "origin", origin.Authority())
	return nil
}

// ProbeProtocol makes a handshake with every alternative of an origin and one
// over TCP. The address policy is asked as for a delivery. TLS material is that
// of the routes that are known; without one, the system's roots.
func (e *Engine) ProbeProtocol(ctx context.Context, authority string) (ProbeResult, error) {
	origin, err := protocolOrigin(authority)
	if err != nil {
		return ProbeResult{}, err
	}
	if err := e.guard.CheckHost(origin.Host, origin.Port); err != nil {
		return ProbeResult{}, &InvalidError{Fields: []FieldError{{
			Field: "host", Value: clipped(authority), Rule: err.Error(), Hint: "probe an origin that deliveries may reach",
		}}}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return e.selector.Probe(ctx, e.probeEndpoint(origin)), nil
}

// probeEndpoint returns a known route of an origin with its TLS material, so
// that an origin with its own CA can be probed.
func (e *Engine) probeEndpoint(origin delivery.Origin) delivery.Endpoint {
	rows, _ := e.selector.Get(origin)
	for _, p := range e.directory.subs.Values() {
		for _, row := range rows {
			if p.endpoint.Route == row.Route {
				return p.endpoint
			}
		}
	}
	return delivery.Endpoint{Route: delivery.Route{Origin: origin}}
}

func overHTTP(o delivery.Origin) delivery.Origin {
	o.Scheme = "http"
	return o
}

func protocolOrigin(authority string) (delivery.Origin, error) {
	origin, err := protoselect.ParseAuthority(authority)
	if err != nil {
		return origin, &InvalidError{Fields: []FieldError{{
			Field: "host", Value: clipped(authority), Rule: "host:port", Hint: `write "hooks.example.com:443"`,
		}}}
	}
	return origin, nil
}
