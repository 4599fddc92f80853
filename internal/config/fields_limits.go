package config

import "time"

const million = 1_000_000

func (c *Config) limitFields() []*field {
	l := &c.Limits
	return []*field{
		{
			path: "api.max_payload", value: sizeValue(&c.API.MaxPayload, 1, GiB),
			doc: "Largest payload of an event.",
		},
		{
			path: "api.max_batch", value: sizeValue(&c.API.MaxBatch, KiB, GiB),
			doc: "Largest body of a batch of events.",
		},
		{
			path: "dashboard.read_only", live: true, value: boolValue(&c.Dashboard.ReadOnly),
			doc: "The dashboard under /ui/ changes nothing, whatever the token may do that signed in.\nThe API is not concerned.",
		},
		{
			path: "limits.in_flight", live: true, value: intValue(&l.InFlight, 1, million),
			doc: "Attempts in flight on this node, all tenants together.",
		},
		{
			path: "limits.slow_in_flight", live: true, value: intValue(&l.SlowInFlight, 0, million),
			doc: "How many of them slow receivers may hold; 0 is half. Any number of hanging\nreceivers then leaves the other half to the rest.",
		},
		{
			path: "limits.slow_after", value: durationValue(&l.SlowAfter, time.Millisecond, time.Hour),
			doc: "How long an attempt takes before its receiver counts as slow.",
		},
		{
			path: "limits.per_tenant", live: true, value: intValue(&l.PerTenant, 0, million),
			doc: "Attempts in flight of a tenant that has no max_in_flight of its own; 0 is no bound.",
		},
		{
			path: "limits.per_subscriber", live: true, value: intValue(&l.PerSubscriber, 1, 1024),
			doc: "Attempts in flight of a subscriber that has no concurrency of its own.",
		},
		{
			path: "limits.payload_memory", value: sizeValue(&l.PayloadMemory, MiB, 64*GiB),
			doc: "Payloads held in memory on their way from publish to attempt. What does not fit\nis read from disk again when its turn comes.",
		},
	}
}

func (c *Config) connectionFields() []*field {
	n, t := &c.Connections, &c.Timeouts
	return []*field{
		{
			path: "connections.tcp_per_origin", value: intValue(&n.TCPPerOrigin, 1, 10_000),
			doc: "TCP connections to one origin.",
		},
		{
			path: "connections.quic_per_origin", value: intValue(&n.QUICPerOrigin, 1, 1000),
			doc: "QUIC connections to one origin.",
		},
		{
			path: "connections.idle_tcp", value: intValue(&n.IdleTCP, 1, million),
			doc: "Idle TCP connections in all, 25 to 29 KiB each.",
		},
		{
			path: "connections.idle_quic", value: intValue(&n.IdleQUIC, 1, million),
			doc: "Idle QUIC connections in all, 57 KiB each.",
		},
		{
			path: "timeouts.attempt", live: true, value: durationValue(&t.Attempt, 100*time.Millisecond, 5*time.Minute),
			doc: "One attempt, from dial to answer, of a subscriber that has no timeout of its own.",
		},
		{
			path: "timeouts.dial", value: durationValue(&t.Dial, time.Second, time.Minute),
			doc: "A connection over TCP: lookup, connect, proxy and TLS.",
		},
		{
			path: "timeouts.quic_handshake", value: durationValue(&t.QUICHandshake, 100*time.Millisecond, time.Minute),
			doc: "Silence after which a QUIC handshake has failed.",
		},
		{
			path: "timeouts.idle_tcp", value: durationValue(&t.IdleTCP, time.Second, time.Hour),
			doc: "When an unused TCP connection is closed.",
		},
		{
			path: "timeouts.idle_quic", value: durationValue(&t.IdleQUIC, time.Second, time.Hour),
			doc: "When an unused QUIC connection is closed. Keep it below the UDP timeout of NATs\non the way, often 30s: a request into a forgotten mapping may or may not arrive.",
		},
	}
}

func (c *Config) retryFields() []*field {
	b := &c.Breaker
	return []*field{
		{
			path: "breaker.failures", live: true, value: intValue(&b.Failures, 1, 1000),
			doc: "Failures in a row after which deliveries to a subscriber pause.",
		},
		{
			path: "breaker.window", live: true, value: intValue(&b.Window, 1, 64),
			doc: "Last outcomes over which more than half failed has the same effect.",
		},
		{
			path: "breaker.open_for", live: true, value: durationValue(&b.OpenFor, time.Second, day),
			doc: "First pause; it doubles until one attempt succeeds.",
		},
		{
			path: "breaker.open_max", live: true, value: durationValue(&b.OpenMax, time.Second, day),
			doc: "Longest pause.",
		},
		{
			path: "operations.tenant", live: true, value: textValue(&c.Operations.Tenant, "tenant", checkName),
			doc: "Tenant whose subscribers of dispatcher.* hear of the node itself: of its disk. Empty\nis none: what is true of the node is not told to tenants. Of their own subscribers\nall tenants hear.",
		},
	}
}
