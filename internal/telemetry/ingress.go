package telemetry

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/ingress/kernel"
)

// ingressMetrics are those of the edge receiver.
type ingressMetrics struct {
	answers     *prometheus.CounterVec // step, status
	answerTime  *prometheus.HistogramVec
	bytes       prometheus.Counter
	spooled     prometheus.Counter
	delayed     prometheus.Counter
	lookups     *prometheus.CounterVec // result
	refused     *prometheus.CounterVec // why
	certificate prometheus.Gauge
	certFailed  prometheus.Counter
	drops       *prometheus.CounterVec // kind
	queue       *prometheus.GaugeVec   // network
	queueLimit  *prometheus.GaugeVec   // network
	socketDrops prometheus.Gauge
}

func (m *Metrics) makeIngress() {
	r := &m.received
	r.answers = m.counters("ingress_answers_total", "Requests by the check that ended them, and the status.", "step", "status")
	r.answerTime = m.histograms("ingress_answer_seconds", "Time from the end of a request's headers to its answer.", latencyBuckets, "step")
	r.bytes = m.counter("ingress_received_bytes_total", "Bytes of bodies, as far as they were read.")
	r.spooled = m.counter("ingress_spooled_total", "Bodies that went to a file.")
	r.delayed = m.counter("ingress_over_quota_total", "Events that were taken over quota, and processed later.")
	r.lookups = m.counters("ingress_source_lookups_total", "Uses of the source cache, and calls behind it.", "result")
	r.refused = m.counters("ingress_connections_refused_total", "Connections that were closed before a byte was read.", "why")
	r.certificate = m.gauge("ingress_certificate_expiry_seconds", "When the served certificate ends, Unix time; 0 = there is none.")
	r.certFailed = m.counter("ingress_certificate_failures_total", "Certificates that could not be loaded; the old one stays.")
	r.drops = m.counters("ingress_kernel_drops_total", "What the kernel dropped before a server could see it, in the whole network namespace.", "kind")
	r.queue = m.gauges("ingress_socket_queue", "What waits at the ingress's own sockets: connections (tcp), bytes (udp).", "network")
	r.queueLimit = m.gauges("ingress_socket_queue_limit", "The most that may wait there.", "network")
	r.socketDrops = m.gauge("ingress_udp_socket_drops", "Datagrams dropped at the ingress's own UDP socket.")
	for _, o := range ingress.Outcomes() {
		r.answerTime.WithLabelValues(o.String())
		r.answers.WithLabelValues(o.String(), strconv.Itoa(o.Status()))
	}
	r.answers.WithLabelValues(ingress.OutcomeHandshake.String(), strconv.Itoa(http.StatusNoContent))
	for l := ingress.LookupHit; l <= ingress.LookupLimited; l++ {
		r.lookups.WithLabelValues(l.String())
	}
	for _, c := range []ingress.ConnRefusal{ingress.ConnClientLimit, ingress.ConnQUICLimit} {
		r.refused.WithLabelValues(c.String())
	}
	for kind := range kernelDrops(kernel.Counters{}) {
		r.drops.WithLabelValues(kind)
	}
	for _, network := range []string{"tcp", "udp"} {
		r.queue.WithLabelValues(network)
		r.queueLimit.WithLabelValues(network)
	}
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	return g
}

// kernelDrops names the kernel's counters. Retransmitted SYNs are not among them:
// our own dials to dead hosts count there, too.
func kernelDrops(c kernel.Counters) map[string]uint64 {
	return map[string]uint64{
		"listen_overflows": c.ListenOverflows, "listen_drops": c.ListenDrops, "syncookies_sent": c.SyncookiesSent,
		"udp_rcvbuf_errors": c.UDPRcvbufErrors, "udp6_rcvbuf_errors": c.UDP6RcvbufErrors,
	}
}

func (m *Metrics) ingress() ingress.Observer {
	r := &m.received
	return ingress.Observer{
		Answered: func(a ingress.Answered) {
			r.answers.WithLabelValues(a.Outcome.String(), strconv.Itoa(a.Status)).Inc()
			r.answerTime.WithLabelValues(a.Outcome.String()).Observe(a.Took.Seconds())
			r.bytes.Add(float64(a.Bytes))
			if a.Spooled {
				r.spooled.Inc()
			}
			if a.Delayed > 0 {
				r.delayed.Inc()
			}
		},
		LookedUp:    func(l ingress.Lookup) { r.lookups.WithLabelValues(l.Result.String()).Inc() },
		ConnRefused: func(c ingress.ConnRefusal) { r.refused.WithLabelValues(c.String()).Inc() },
		Certificate: func(c ingress.CertificateEvent) {
			if !c.NotAfter.IsZero() {
				r.certificate.Set(float64(c.NotAfter.Unix()))
			}
			if c.Err != nil {
				r.certFailed.Inc()
			}
		},
		Kernel: func(s ingress.KernelSample) {
			for kind, n := range kernelDrops(s.Moved) {
				r.drops.WithLabelValues(kind).Add(float64(n))
			}
			for _, l := range s.Listeners {
				r.queue.WithLabelValues(l.Network).Set(float64(l.Queue))
				r.queueLimit.WithLabelValues(l.Network).Set(float64(l.Limit))
				if l.Network == "udp" {
					r.socketDrops.Set(float64(l.Drops))
				}
			}
		},
	}
}

// ingressGauges are read when they are asked for.
var ingressGauges = map[string]func(ingress.Stats) int64{
	"bodies":          func(s ingress.Stats) int64 { return s.Bodies },
	"memory_bytes":    func(s ingress.Stats) int64 { return s.MemoryBytes },
	"spool_bytes":     func(s ingress.Stats) int64 { return s.SpoolBytes },
	"known_sources":   func(s ingress.Stats) int64 { return int64(s.Known) },
	"unknown_sources": func(s ingress.Stats) int64 { return int64(s.Unknown) },
}

var ingressGaugeHelp = map[string]string{
	"bodies":          "Bodies that are being received.",
	"memory_bytes":    "Their bytes in memory.",
	"spool_bytes":     "Their bytes in files.",
	"known_sources":   "Sources in the cache.",
	"unknown_sources": "Ids in the cache that no source has.",
}
