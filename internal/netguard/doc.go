// Package netguard decides which addresses the dispatcher may send to. A
// webhook URL is written by somebody else, so without a guard every subscriber
// can make the dispatcher talk to the platform's own network (server-side
// request forgery).
//
// # What it guarantees
//
//   - No socket is opened to an address that the policy denies, however the
//     address was written or found: a literal in the URL, a DNS answer, a second
//     and different DNS answer (rebinding), an Alt-Svc host or address hint, a
//     redirect's target, the target behind a CONNECT proxy; over TCP and UDP.
//   - The decision is made on a parsed [netip.Addr], never on text, and the
//     address that was judged is the address that is dialled. There is one
//     lookup per dial and nothing resolves the name a second time.
//   - An IPv4 address that is denied is denied inside IPv6 as well: mapped,
//     compatible, translated, 6to4, ISATAP and NAT64 forms are unwrapped and the
//     address inside is judged too.
//   - A name is denied as a whole when ANY of its answers is denied: otherwise an
//     attacker only has to answer often enough.
//   - An error names the host, the address, the rule and the setting that would
//     allow it, and never a URL's userinfo, path or query.
//
// # The path of a delivery
//
//	registration   raw URL ──► ParseTarget ──► Target{URL, Host, Port, Addr}
//	                              │ scheme, userinfo, port, host spelling,
//	                              │ IDNA, single label, literal address
//	                              ▼
//	                          *FieldError (field, value, rule, hint)
//
//	dial           host ─► parseHost ─► literal ──────────┐
//	                          │                           ▼
//	                          └► Resolver("name.") ─► CheckAddr (every answer)
//	                               one lookup             │        │
//	                                                 any denied    all allowed
//	                                                      ▼        ▼
//	                                            *DeniedError   literals, families
//	                                                           interleaved
//	                                                               │
//	                         TCP: net.Dialer ─► DialControl ─► connect(2)
//	                         UDP: CheckUDP ─► quic.Transport.Dial
//
// [Guard.DialControl] repeats the decision between socket(2) and connect(2), on the
// address the kernel is about to be given. A QUIC transport shares one
// unconnected UDP socket between all peers and has no such moment, so
// [Guard.CheckUDP] must stand immediately before its Dial.
//
// # Literal or answer
//
// [DeniedError.Literal] tells a verdict that follows from the URL alone, which
// no retry can change, from a verdict on a DNS answer. The second is retried: a
// resolver's slip must not empty a queue into the dead-letter queue.
//
// # What it deliberately does not do
//
//   - It keeps no cache of answers, positive or negative. A cache here would
//     stretch the time in which an address that the owner has withdrawn is still
//     dialled, and the connection pools above make a lookup rare. A caching
//     resolver belongs beside the node, or behind [Config.Resolver].
//   - It does not judge names. `metadata.google.internal` is denied for the
//     address it resolves to; lists of bad names are always incomplete.
//   - It does not block ports. Port rules are the egress firewall's.
//   - It does not discover a network's own NAT64 or 6rd prefix. An operator whose
//     network translates a prefix of its own names it in [Config.NAT64Prefixes];
//     otherwise an address in that prefix looks like any global address.
//   - It does not read HTTP_PROXY and friends: an egress proxy is configured in
//     one place ([Config.Proxy]), since it changes what a verdict means.
package netguard
