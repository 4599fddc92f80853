// Package doctor finds out whether deliveries to a URL would work, and why not,
// from the machine it runs on and without a running node.
//
//	URL ─► netguard.ParseTarget ─► lookup ─► a verdict for every address
//	                                              │ all allowed
//	               ┌──────────────────────────────┤
//	               ▼                              ▼
//	     transport.Inspect                transport.Inspect
//	     every address, TCP               every address, QUIC
//	               │                              │
//	               ▼                              ▼
//	     protoselect.Do, the signed POST  protoselect.Probe: HTTPS record,
//	     if it is asked for ──Alt-Svc──►  Alt-Svc, a handshake with each
//	               │                              │ alternative
//	               └──────────────┬───────────────┘
//	                              ▼
//	             Report: findings, problems, one line each on how to mend it
//
// It guarantees that what it tries is what a delivery would do: the same policy,
// the same lookups, the same handshakes and the same classifier judge. Nothing
// is sent to an address that a delivery would not be sent to, and no request is
// made unless it is asked for. A report holds neither the secret nor the URL's
// path and query.
//
// It deliberately does not ask a proxy, does not look at a node's memory or
// queue (that is `dispatcher protocols` and `dispatcher deliveries`), and judges
// nothing by itself: whether an answer is a delivery is [delivery.Classify]'s
// word.
package doctor
