package telemetry

import (
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/storage"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Observe makes an engine that is yet to be built report here.
func (m *Metrics) Observe(config *engine.Config) {
	config.Sched.Observer = m.scheduler()
	config.Selector.Observer = m.selection()
	config.Transport.Observer = m.transport()
	config.Storage.Observer = m.storage()
	if config.Ingress != nil {
		config.Ingress.Observer = m.ingress()
	}
	config.Operations.Observed = func(topic string, result engine.OperationalResult) {
		m.operational.WithLabelValues(topic, string(result)).Inc()
	}
	config.Guard.Observer = netguard.Observer{Denied: func(d netguard.Denial) {
		m.denied.WithLabelValues(string(d.Stage), string(d.Rule)).Inc()
	}}
}

func (m *Metrics) scheduler() sched.Observer {
	return sched.Observer{
		AttemptFinished: func(e sched.AttemptFinished) {
			result := &e.Attempt.Result
			took := result.Phases.Total.Seconds()
			m.attempts.of(result.Protocol, e.Attempt.Outcome.Reason).Inc()
			m.attemptTimeOf(result.Protocol).Observe(took)
			m.times.queued.Observe(max(0, e.Lateness.Seconds()))
			m.times.attempted.Observe(took)
			m.moved.of(e.Next, e.Reason).Inc()
			m.ended(e)
		},
		Moved:          func(e sched.Decided) { m.moved.of(e.Next, e.Reason).Inc() },
		BreakerChanged: func(e sched.BreakerChanged) { m.breaker.WithLabelValues(e.To.String()).Inc() },
		Disabled:       func(e sched.Disabled) { m.disabled.WithLabelValues(e.Reason.String()).Inc() },
		Stalled:        func(error) { m.stalls.Inc() },
	}
}

// States that are timed, and ends.
const (
	stateQueued    = "queued"
	stateAttempted = "attempted"
	stateRetrying  = "retrying"
)

// ended times what an attempt's outcome leads to.
func (m *Metrics) ended(e sched.AttemptFinished) {
	at := e.Attempt.StartedAt.Add(e.Attempt.Result.Phases.Total)
	switch e.Next {
	case delivery.NextRetry:
		m.times.retrying.Observe(max(0, e.Due.Sub(at).Seconds()))
	case delivery.NextDelivered:
		m.times.delivered.Observe(max(0, at.Sub(e.Event.AcceptedAt()).Seconds()))
	case delivery.NextDead:
		m.times.dead.Observe(max(0, at.Sub(e.Event.AcceptedAt()).Seconds()))
	default:
	}
}

func (m *Metrics) selection() protoselect.Observer {
	return protoselect.Observer{
		StateChanged: func(c protoselect.StateChange) {
			m.alternatives.WithLabelValues(c.To.String()).Inc()
			if c.To == protoselect.StateBroken {
				m.broken.WithLabelValues(c.Class.String()).Inc()
			}
		},
		Raced:  func(r protoselect.Race) { m.races.WithLabelValues(r.Winner.String(), verdictName(r.Loser)).Inc() },
		Resent: func(r protoselect.Resend) { m.resends.WithLabelValues(string(r.Reason)).Inc() },
		Egress: func(c protoselect.EgressChange) {
			if c.Open {
				m.egress.Inc()
			}
		},
	}
}

func (m *Metrics) transport() transport.Observer {
	return transport.Observer{
		Handshake: func(e transport.HandshakeEvent) {
			result := "up"
			if e.Cause != delivery.CauseNone {
				result = e.Cause.String()
			} else {
				m.handshakeTime.WithLabelValues(e.Protocol.String()).Observe(e.Took.Seconds())
			}
			m.handshakes.WithLabelValues(e.Protocol.String(), result).Inc()
		},
		Evicted: func(p delivery.Protocol, why transport.Eviction) {
			m.evictions.WithLabelValues(p.String(), why.String()).Inc()
		},
	}
}

func (m *Metrics) storage() storage.Observer {
	return storage.Observer{
		Batch: func(b storage.BatchInfo) {
			m.published.Add(float64(b.Publishes))
			m.facts.Add(float64(b.Facts))
			m.batchBytes.Add(float64(b.Bytes))
			m.syncs.Observe(b.Sync.Seconds())
		},
		Failed: func(error) { m.storeFailures.Inc() },
		Disk: func(free, total uint64, full bool) {
			m.diskRefuses.Set(map[bool]float64{true: 1}[full])
			m.diskFree.Set(float64(free))
			m.diskTotal.Set(float64(total))
		},
		Retained: func(r storage.RetainInfo) { m.retainedDead.Add(float64(r.Dead)) },
	}
}

var nexts = map[delivery.Next]string{
	delivery.NextDelivered: "delivered", delivery.NextRetry: "retrying", delivery.NextDead: "dead",
	delivery.NextCanceled: "canceled", delivery.NextParked: "parked",
}

func nextName(n delivery.Next) string {
	if name, ok := nexts[n]; ok {
		return name
	}
	return "invalid"
}

func verdictName(v protoselect.Verdict) string {
	if v == protoselect.VerdictNone {
		return "none"
	}
	return string(v)
}

var protocols = []delivery.Protocol{
	delivery.ProtocolNone, delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3,
}

// outcomes are the reasons an attempt can end with: below the first reason that
// needs no attempt.
func outcomes() []delivery.Reason {
	var out []delivery.Reason
	for _, r := range delivery.Reasons() {
		if r > delivery.ReasonNone && r < delivery.ReasonExhausted {
			out = append(out, r)
		}
	}
	return out
}

// fill makes every series of the closed lists, so that none appears late.
func (m *Metrics) fill() {
	for _, p := range protocols {
		for _, r := range outcomes() {
			m.attempts.fill(p, r)
		}
	}
	for _, r := range delivery.Reasons() {
		for _, next := range []delivery.Next{delivery.NextRetry, delivery.NextDead, delivery.NextCanceled, delivery.NextParked} {
			m.moved.fill(next, r)
		}
	}
	m.moved.fill(delivery.NextDelivered, delivery.ReasonDelivered)
	m.fillTimes()
	m.fillProtocols()
	for b := delivery.BreakerClosed; b <= delivery.BreakerHalfOpen; b++ {
		m.breaker.WithLabelValues(b.String())
	}
	for _, r := range []delivery.Reason{delivery.ReasonGone, delivery.ReasonFailingTooLong, delivery.ReasonTooManyFailed} {
		m.disabled.WithLabelValues(r.String())
	}
	for _, r := range []protoselect.ResendReason{
		protoselect.ResendNever, protoselect.ResendRefused, protoselect.ResendMisdirected, protoselect.ResendTooEarly,
	} {
		m.resends.WithLabelValues(string(r))
	}
	for _, topic := range engine.OperationalTopics() {
		for _, result := range engine.OperationalResults() {
			m.operational.WithLabelValues(topic, string(result))
		}
	}
	for _, stage := range netguard.Stages() {
		for _, rule := range netguard.Rules() {
			m.denied.WithLabelValues(string(stage), string(rule))
		}
	}
}

// fillProtocols makes the series of connections and of the choice between them.
func (m *Metrics) fillProtocols() {
	for _, p := range protocols {
		if p != delivery.ProtocolNone {
			m.handshakes.WithLabelValues(p.String(), "up")
			m.handshakeTime.WithLabelValues(p.String())
		}
		for c := delivery.CauseDNS; c <= delivery.CauseStreams; c++ {
			m.handshakes.WithLabelValues(p.String(), c.String())
		}
		for why := transport.EvictClosed; why <= transport.EvictShutdown; why++ {
			m.evictions.WithLabelValues(p.String(), why.String())
		}
		for _, v := range verdicts {
			m.races.WithLabelValues(p.String(), verdictName(v))
		}
	}
	for state := protoselect.StateUnknown; state <= protoselect.StateDisabled; state++ {
		m.alternatives.WithLabelValues(state.String())
	}
	for c := delivery.BrokenTimeout; c <= delivery.BrokenMisdirected; c++ {
		m.broken.WithLabelValues(c.String())
	}
}

var verdicts = []protoselect.Verdict{
	protoselect.VerdictNone, protoselect.VerdictUp, protoselect.VerdictPending, protoselect.VerdictNotStarted, protoselect.VerdictTimeout,
	protoselect.VerdictExplicit, protoselect.VerdictCertificate, protoselect.VerdictFailed, protoselect.VerdictCanceled,
}
