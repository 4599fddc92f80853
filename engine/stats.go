package engine

import (
	"errors"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Connections returns how many connections of a protocol are live, and how many
// of those are idle.
func (e *Engine) Connections(p delivery.Protocol) (live, idle int) {
	s := e.transport.Stats()
	switch p {
	case delivery.ProtocolHTTP1:
		return s.HTTP1.Live, s.HTTP1.Idle
	case delivery.ProtocolHTTP2:
		return s.HTTP2.Live, s.HTTP2.Idle
	case delivery.ProtocolHTTP3:
		return s.HTTP3.Live, s.HTTP3.Idle
	default:
		return 0, 0
	}
}

// Sockets returns how many UDP sockets are open.
func (e *Engine) Sockets() int { return e.transport.Stats().Sockets }

// InFlight returns how many attempts are in flight.
func (e *Engine) InFlight() int { return e.sched.Stats().InFlight }

// Reserved returns how many attempts in flight subscribers and tenants reserve, and
// how many of the free ones nobody else may take now.
func (e *Engine) Reserved() (promised, kept int) {
	s := e.sched.Stats()
	return s.Promised, s.Kept
}

// status is how a subscriber is doing: what its actor knows if it has one, else
// what was last stored.
func (e *Engine) status(s *delivery.Subscriber) (SubscriberStatus, error) {
	live, err := e.sched.Status(s.Num)
	if err != nil && !errors.Is(err, delivery.ErrNoSubscriber) {
		return SubscriberStatus{}, e.storeFault(err)
	}
	return SubscriberStatus{
		Breaker: live.Health.Breaker.String(), InFlight: live.InFlight, Waiting: live.Waiting, NextDue: live.Until,
		FailingSince: live.Health.FailingSince, LastSuccess: live.Health.LastSuccess, Consecutive: live.Health.Consecutive,
	}, nil
}
