// Package api is the dispatcher's HTTP API: tenants, subscribers, events,
// deliveries, health and the OpenAPI document that describes them.
//
//	client ─► auth (bearer token) ─► size limit ─► decode ─► Node (the engine) ─► JSON
//	                │                                  │
//	                └── 401 problem                    └── 4xx problem naming field, value, rule, hint
//
// It guarantees that a 2xx of a publish means the event is durable, that every
// error is a problem document (RFC 9457), and that a secret appears in exactly
// one answer: the one that made it.
//
// It holds no state and no policy; those are the engine's behind [Node].
package api
