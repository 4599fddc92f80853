package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

const namespace = "dispatcher"

// Metrics is the node's metrics. It belongs to one node.
type Metrics struct {
	registry *prometheus.Registry

	attempts      pairs[delivery.Protocol, delivery.Reason]
	attemptTime   *prometheus.HistogramVec // protocol
	stateTime     *prometheus.HistogramVec // state
	deliveryTime  *prometheus.HistogramVec // end
	moved         pairs[delivery.Next, delivery.Reason]
	times         times
	breaker       *prometheus.CounterVec // to
	disabled      *prometheus.CounterVec // reason
	stalls        prometheus.Counter
	handshakes    *prometheus.CounterVec   // protocol, result
	handshakeTime *prometheus.HistogramVec // protocol
	evictions     *prometheus.CounterVec   // protocol, why
	races         *prometheus.CounterVec   // winner, loser
	resends       *prometheus.CounterVec   // reason
	alternatives  *prometheus.CounterVec   // to
	broken        *prometheus.CounterVec   // class
	egress        prometheus.Counter
	denied        *prometheus.CounterVec // stage, rule
	published     prometheus.Counter
	facts         prometheus.Counter
	syncs         prometheus.Histogram
	batchBytes    prometheus.Counter
	storeFailures prometheus.Counter
	diskFree      prometheus.Gauge
	diskTotal     prometheus.Gauge
	diskRefuses   prometheus.Gauge
	retainedDead  prometheus.Counter
	operational   *prometheus.CounterVec // topic, result
	received      ingressMetrics
}

// latencyBuckets reach from a loopback round trip to an attempt's timeout.
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60}

// stateBuckets reach from a delivery that goes at once to the end of the retry
// ladder, three days on.
var stateBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 36000, 86400, 259200}

// syncBuckets reach from a fast disk's fsync to a stall.
var syncBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}

// New makes the metrics with every label combination of the closed lists.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.makeDelivery()
	m.makeProtocols()
	m.makeStore()
	m.makeIngress()
	m.fill()
	return m
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) makeDelivery() {
	m.attempts.vec = m.counters("attempts_total", "Attempts by protocol and by the outcome's reason.", "protocol", "reason")
	m.attempts.names = func(p delivery.Protocol, r delivery.Reason) (string, string) { return p.String(), r.String() }
	m.attemptTime = m.histograms("attempt_seconds", "Duration of attempts, from dial to the answer.", latencyBuckets, "protocol")
	m.stateTime = m.histograms("state_seconds", "How long deliveries stay in a state: queued (could be sent, and waits for its turn), attempted, retrying (waits for its next attempt).", stateBuckets, "state")
	m.deliveryTime = m.histograms("delivery_seconds", "Time from the acceptance of an event to the end of a delivery, by the end: delivered or dead.", stateBuckets, "end")
	m.moved.vec = m.counters("moves_total", "Deliveries that moved, by where to and why.", "next", "reason")
	m.moved.names = func(n delivery.Next, r delivery.Reason) (string, string) { return nextName(n), r.String() }
	m.breaker = m.counters("breaker_changes_total", "Circuit breaker transitions by the new state.", "to")
	m.disabled = m.counters("subscribers_disabled_total", "Subscribers the dispatcher disabled, by reason.", "reason")
	m.stalls = m.counter("scheduler_stalls_total", "Times the scheduler stopped because the store refused a commit.")
}

func (m *Metrics) makeProtocols() {
	m.handshakes = m.counters("handshakes_total", "Connection attempts by protocol and result.", "protocol", "result")
	m.handshakeTime = m.histograms("handshake_seconds", "Duration of handshakes that succeeded.", latencyBuckets, "protocol")
	m.evictions = m.counters("connections_closed_total", "Connections that left the pool, by protocol and why.", "protocol", "why")
	m.races = m.counters("races_total", "Races of QUIC against TCP by the winner's protocol and the loser's verdict.", "winner", "loser")
	m.resends = m.counters("resends_total", "Second writes inside one attempt, each proven safe, by reason.", "reason")
	m.alternatives = m.counters("alternative_changes_total", "HTTP/3 alternatives by the state they moved to.", "to")
	m.broken = m.counters("alternatives_broken_total", "HTTP/3 alternatives that were found broken, by why.", "class")
	m.egress = m.counter("egress_breaker_opens_total", "Times HTTP/3 was given up for an egress because UDP seems blocked.")
	m.denied = m.counters("dials_denied_total", "Addresses that policy denied, by stage and rule.", "stage", "rule")
}

func (m *Metrics) makeStore() {
	m.published = m.counter("events_published_total", "Events made durable.")
	m.facts = m.counter("store_facts_total", "Facts made durable, publishes not counted.")
	m.syncs = m.histogram("store_sync_seconds", "Time from a batch's application to its durability; its count is the number of fsyncs.", syncBuckets)
	m.batchBytes = m.counter("store_written_bytes_total", "Bytes written to the log.")
	m.storeFailures = m.counter("store_failures_total", "Times the store could not write any more and had to be opened again.")
	m.diskFree = m.gauge("disk_free_bytes", "Free space of the data directory's file system.")
	m.diskTotal = m.gauge("disk_total_bytes", "Size of the data directory's file system.")
	m.diskRefuses = m.gauge("disk_refuses_publishes", "1 while publishes are refused because the free space is below the watermark.")
	m.retainedDead = m.counter("dead_letters_expired_total", "Dead letters removed because their retention ended.")
	m.operational = m.counters("operational_events_total",
		"Events of the dispatcher's own: published, delayed (a try that the store refused) or dropped (too many waited, or it could not be stored).", "topic", "result")
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Watch adds gauges that are read from the engine when they are asked for.
func (m *Metrics) Watch(e *engine.Engine) {
	gauge := func(name, help string, labels prometheus.Labels, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: name, Help: help, ConstLabels: labels,
		}, read))
	}
	for _, p := range []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		labels := prometheus.Labels{"protocol": p.String()}
		gauge("connections", "Live connections.", labels, func() float64 { live, _ := e.Connections(p); return float64(live) })
		gauge("connections_idle", "Idle connections.", labels, func() float64 { _, idle := e.Connections(p); return float64(idle) })
	}
	gauge("udp_sockets", "UDP sockets for HTTP/3.", nil, func() float64 { return float64(e.Sockets()) })
	for what, read := range ingressGauges {
		gauge("ingress_"+what, ingressGaugeHelp[what], nil, func() float64 { return float64(read(e.IngressStats())) })
	}
	gauge("attempts_in_flight", "Attempts in flight.", nil, func() float64 { return float64(e.InFlight()) })
	gauge("attempts_reserved", "Attempts in flight that subscribers and tenants reserve.", nil, func() float64 { promised, _ := e.Reserved(); return float64(promised) })
	gauge("attempts_reserved_free", "Reserved attempts that are free now, and kept from all others.", nil, func() float64 { _, kept := e.Reserved(); return float64(kept) })
	m.registry.MustRegister(newBacklog(e.Backlog))
	gauge("ready", "1 while publishes are accepted.", nil, func() float64 {
		if e.Ready() != nil {
			return 0
		}
		return 1
	})
}
