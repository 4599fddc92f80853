package config

import (
	"net/netip"
	"time"
)

func (c *Config) egressFields() []*field {
	e, r := &c.Egress, &c.Resolver
	return []*field{
		{
			path: "egress.proxy", value: secretValue(&e.Proxy, checkProxy), shown: func() string { return maskURL(e.Proxy.Reveal()) },
			doc: "URL of a proxy that is asked to CONNECT, http or https, with credentials if it\nwants them. Over it there is no HTTP/3.",
		},
		{
			path: "egress.no_proxy", value: textList(&e.NoProxy, "host,…", notEmpty),
			doc: "Targets that are dialled without it: a domain with all below it, an address or a\nrange.",
		},
		{
			path: "egress.proxy_remote_dns", value: boolValue(&e.ProxyRemoteDNS),
			doc: "Leave names to the proxy, for networks whose resolver does not know the outside.\nThen the proxy alone decides which addresses a name may lead to.",
		},
		{
			path: "egress.deny", live: true, value: prefixList(&e.Deny),
			doc: "Further ranges that are never dialled, whatever allow_private says.",
		},
		{
			path: "egress.single_label_hosts", live: true, value: boolValue(&e.SingleLabelHosts),
			doc: "Admit names without a dot, as container networks use.",
		},
		{
			path: "egress.source_ipv4", value: sourceValue(&e.SourceIPv4, "IPv4", netip.Addr.Is4),
			doc: "Local address to connect from, over TCP and UDP, to a proxy as well. Empty is the\nsystem's choice.",
		},
		{
			path: "egress.source_ipv6", value: sourceValue(&e.SourceIPv6, "IPv6", netip.Addr.Is6),
			doc: "The same for IPv6.",
		},
		{
			path: "resolver.servers", value: serverList(&r.Servers),
			doc: "DNS servers, asked in order; none is the system's.",
		},
		{
			path: "resolver.https_records", value: boolValue(&r.HTTPSRecords),
			doc: "Look for HTTP/3 in HTTPS records (RFC 9460), not only in Alt-Svc headers.",
		},
		{
			path: "resolver.timeout", value: durationValue(&r.Timeout, 10*time.Millisecond, 10*time.Second),
			doc: "One query to one server.",
		},
		{
			path: "redis.url", value: secretValue(&c.Redis.URL, checkRedis), shown: func() string { return maskURL(c.Redis.URL.Reveal()) },
			doc: "redis://[user:password@]host:port[/db], rediss:// for TLS; empty is none.",
		},
		{
			path: "redis.timeout", value: durationValue(&c.Redis.Timeout, time.Millisecond, time.Second),
			doc: "After which a decision is made without it.",
		},
	}
}

func (c *Config) ingressFields() []*field {
	i := &c.Ingress
	return []*field{
		{
			path: "ingress.tls_cert", value: textValue(&i.TLSCert, "file", anyText),
			doc: "Certificate chain, PEM; with it, TLS and HTTP/3 are served. It is read again when\nit changes.",
		},
		{
			path: "ingress.tls_key", value: textValue(&i.TLSKey, "file", anyText),
			doc: "Its key, PEM.",
		},
		{
			path: "ingress.http3", value: boolValue(&i.HTTP3),
			doc: "Serve HTTP/3 beside TCP when there is a certificate.",
		},
		{
			path: "ingress.advertised_port", value: intValue(&i.AdvertisedPort, 0, 65535),
			doc: "UDP port that Alt-Svc names, if another one is mapped to ours; 0 is ours.",
		},
		{
			path: "ingress.trusted_proxies", value: prefixList(&i.TrustedProxies),
			doc: "Peers whose X-Forwarded-For is believed.",
		},
		{
			path: "ingress.max_connections", value: intValue(&i.MaxConnections, 1, million),
			doc: "TCP connections in all; further ones wait.",
		},
		{
			path: "ingress.max_connections_per_client", value: intValue(&i.MaxConnectionsPerClient, 1, million),
			doc: "TCP connections of one address that is no trusted proxy; further ones are closed.",
		},
		{
			path: "ingress.backlog", value: intValue(&i.Backlog, 0, million),
			doc: "Connections that wait in the kernel to be accepted; 0 is net.core.somaxconn, which\nis also the most.",
		},
		{
			path: "ingress.header_timeout", value: durationValue(&i.HeaderTimeout, 100*time.Millisecond, time.Minute),
			doc: "A TLS handshake, and the headers of a request.",
		},
		{
			path: "ingress.body_timeout", value: durationValue(&i.BodyTimeout, time.Second, 10*time.Minute),
			doc: "The body of a request.",
		},
		{
			path: "ingress.idle_timeout", value: durationValue(&i.IdleTimeout, time.Second, time.Hour),
			doc: "When an unused connection is closed.",
		},
		{
			path: "ingress.max_body", value: sizeValue(&i.MaxBody, KiB, GiB),
			doc: "Largest body that any source may accept.",
		},
		{
			path: "ingress.memory_body", value: sizeValue(&i.MemoryBody, KiB, 64*MiB),
			doc: "Bodies above this size go to disk while they arrive.",
		},
		{
			path: "ingress.max_memory", value: sizeValue(&i.MaxMemory, MiB, 1024*GiB),
			doc: "Bodies in memory in all; further ones go to disk early.",
		},
		{
			path: "ingress.max_spool", value: sizeValue(&i.MaxSpool, MiB, 1024*TiB),
			doc: "Bodies on disk in all; further ones are refused with 503.",
		},
		{
			path: "ingress.max_bodies", value: intValue(&i.MaxBodies, 1, million),
			doc: "Bodies that are received at a time; further ones are refused with 503.",
		},
		{
			path: "ingress.max_bodies_per_client", value: intValue(&i.MaxBodiesPerClient, 1, million),
			doc: "The same from one address, so that no single one takes all places by sending\nslowly.",
		},
	}
}

// ingressPolicyFields are about whom the ingress listens to.
func (c *Config) ingressPolicyFields() []*field {
	i := &c.Ingress
	return []*field{
		{
			path: "ingress.failures_per_second", value: floatValue(&i.FailuresPerSecond, 0.001, million, ""),
			doc: "Bad signatures a second, of a tenant and client address, before its requests are\nrefused unread.",
		},
		{
			path: "ingress.failures_burst", value: intValue(&i.FailuresBurst, 1, million),
			doc: "The same at once.",
		},
		{
			path: "ingress.tenant_per_second", live: true, value: floatValue(&i.TenantPerSecond, 0, million, ""),
			doc: "Events a second of a tenant over all its sources; more are taken and processed\nlater. 0 is no limit.",
		},
		{
			path: "ingress.tenant_burst", live: true, value: intValue(&i.TenantBurst, 0, million),
			doc: "The same at once; 0 is one second's worth.",
		},
		{
			path: "ingress.source_cache", value: durationValue(&i.SourceCache, time.Second, time.Hour),
			doc: "How long a source's settings are used before they are read again.",
		},
		{
			path: "ingress.control_plane_url", value: textValue(&i.ControlPlaneURL, "url", checkControlPlane),
			doc: "Base URL of a service that knows the sources; empty is the node's own. It is asked\nwith GET {URL}/tenants/{tenant}/sources/{source}.",
		},
		{
			path: "ingress.control_plane_token", live: true, value: secretValue(&i.ControlPlaneToken, anyText), shown: func() string { return i.ControlPlaneToken.mask() },
			doc: "Bearer token for it.",
		},
		{
			path: "ingress.retry_after", value: durationValue(&i.RetryAfter, time.Second, day),
			doc: "What senders are told when the node cannot take an event.",
		},
	}
}
