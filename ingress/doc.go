// Package ingress is the edge buffer: it receives webhooks from providers and
// answers only when an event is safe. Its work is to reject cheaply, verify,
// deduplicate, make durable and answer; everything else happens later.
//
//	POST /webhook/{tenant}/{source}            status if it ends here
//	  │
//	  ├─ method, path, declared length         405, 404, 413
//	  ├─ failed verifications of this client   429
//	  ├─ source (in-memory cache)              404, 503
//	  ├─ its length, types, encodings, IPs     413, 415, 403
//	  ├─ is the store taking events            503
//	  ├─ signature headers, timestamp          401
//	  ├─ body: streamed once, hashed,          413, 408, 400, 503
//	  │    memory up to 64 KiB, then a file
//	  ├─ signature, under every active secret  401
//	  ├─ a provider's handshake                200, 204
//	  ├─ quota                                 429 (only if the source rejects)
//	  └─ enqueue with deduplication            202, 200, 503
//
// The checks are in the order of their cost, and each has a counter of its own
// ([Outcome]). Nothing is parsed before it is verified.
//
// # Guarantee
//
// A 2xx for an event means that the [Enqueuer] has it on disk, now or since an
// earlier copy. Whatever else happens is not 2xx. Copies of one delivery, side by
// side or days apart, give one event and a 2xx each.
//
// A source without a usable secret does not exist: it fails closed. Answers and
// logs never hold a secret, a body, or a signature that would have been right.
//
// Memory and disk are bounded by [Config], whoever sends: bodies that are being
// received, sources and absences that are remembered, buckets, connections,
// expanded bytes. What exceeds a bound is told to come back.
//
// # Sources
//
// A [Source] says how requests are verified and where events go. It comes from
// the node's own registry or from a [ControlPlane], through a cache: known ones
// for a minute (and, with a control plane, much longer while that cannot be
// reached), unknown ones in a bounded memory of absences, so that invented ids
// cost neither calls nor space.
//
// # What it deliberately does not do
//
// It does not deliver, retry or read its own queue; that is the scheduler's and
// the transport's, also for batches to an origin (package origin has their logic).
// It does not trust a header about the client or the URL, except X-Forwarded-For
// from [Config].TrustedProxies. It keeps no memory of ids: only the store can
// deduplicate in the same batch in which it enqueues. It cannot see what the
// kernel dropped before accept(2); package kernel reads that.
package ingress
