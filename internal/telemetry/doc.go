// Package telemetry turns the parts' typed events into Prometheus metrics. It is
// the only package that knows Prometheus.
//
//	sched, protoselect, transport, storage, netguard ──Observer──► Metrics ──► GET /metrics
//
// Every label comes from a closed list (reasons, protocols, states, verdicts,
// rules) and every series exists from the start, so that a rate is right from
// its first event and an alert on an absent series cannot be silent. No label
// carries a tenant, a subscriber, a host or an id: cardinality does not follow
// what is registered.
package telemetry
