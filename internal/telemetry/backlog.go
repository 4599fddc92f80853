package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// backlog shows the engine's last count of what waits. Its tenants are the worst
// alone, so that the number of series is bounded at any time; who they are changes.
type backlog struct {
	read func() engine.Backlog

	waiting, oldest, dead, age, took        *prometheus.Desc
	tenantWaiting, tenantOldest, tenantDead *prometheus.Desc
}

func newBacklog(read func() engine.Backlog) *backlog {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return &backlog{
		read:          read,
		waiting:       desc("backlog_deliveries", "Deliveries that wait, by what for: ready (a slot), retrying (their time), parked (an earlier one of their ordering key).", "state"),
		oldest:        desc("backlog_oldest_seconds", "Age of the oldest delivery that waits; 0 when none does."),
		dead:          desc("dead_letters", "Dead letters in the store."),
		age:           desc("backlog_count_age_seconds", "How long ago the backlog and the dead letters were counted."),
		took:          desc("backlog_count_seconds", "How long that count ran in the background."),
		tenantWaiting: desc("tenant_backlog_deliveries", "Deliveries that wait, of the worst tenants.", "tenant"),
		tenantOldest:  desc("tenant_backlog_oldest_seconds", "Age of the oldest delivery that waits, of the worst tenants.", "tenant"),
		tenantDead:    desc("tenant_dead_letters", "Dead letters in the store, of the worst tenants.", "tenant"),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.waiting, b.oldest, b.dead, b.age, b.took, b.tenantWaiting, b.tenantOldest, b.tenantDead} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Before the first count there is
// nothing to show, and a zero would be a lie.
func (b *backlog) Collect(out chan<- prometheus.Metric) {
	now, last := time.Now(), b.read()
	if last.At.IsZero() {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	since := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return max(0, now.Sub(t).Seconds())
	}
	gauge(b.waiting, float64(last.Ready), "ready")
	gauge(b.waiting, float64(last.Retrying), "retrying")
	gauge(b.waiting, float64(last.Parked), "parked")
	gauge(b.oldest, since(last.Oldest))
	gauge(b.dead, float64(last.Dead))
	gauge(b.age, since(last.At))
	gauge(b.took, last.Took.Seconds())
	for _, t := range last.Worst {
		gauge(b.tenantWaiting, float64(t.Waiting), t.Tenant)
		gauge(b.tenantOldest, since(t.Oldest), t.Tenant)
		gauge(b.tenantDead, float64(t.Dead), t.Tenant)
	}
}
