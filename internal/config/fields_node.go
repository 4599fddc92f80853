package config

import "time"

func (c *Config) nodeFields() []*field {
	return []*field{
		{
			path: "data", value: textValue(&c.Data, "dir", notEmpty), common: true,
			doc: "Directory of the store. It is made with a new node, readable by its owner only.\nIts disk is the system of record: put it on storage that you trust.",
		},
		{
			path: "node", value: textValue(&c.Node, "name", notEmpty),
			doc: "Name of this node in leases and on timelines.",
		},
		{
			path: "node_key_file", value: textValue(&c.NodeKeyFile, "file", anyText),
			doc: "File with the key that seals secrets in the store; empty is node.key in the data\ndirectory. Keep a copy of it apart from the store's: neither is of use without\nthe other.",
		},
		{
			path: "listen", value: addressValue(&c.Listen, false), common: true,
			doc: "Address of the API. It speaks plain HTTP: on another address than loopback, put\na proxy that ends TLS before it.",
		},
		{
			path: "ingress_listen", value: addressValue(&c.IngressListen, true), common: true,
			doc: "Address of the ingress, TCP and with a certificate UDP; off for none.",
		},
		{
			path: "metrics_listen", value: addressValue(&c.MetricsListen, true), common: true,
			doc: "Address that serves GET /metrics without a token; off leaves them to the API,\nwith a token.",
		},
		{
			path: "api_token", live: true, value: secretValue(&c.APIToken, checkToken), shown: func() string { return c.APIToken.mask() }, common: true,
			doc: "Token of the API. Without one, a node makes its own and keeps it in api-token in\nthe data directory. Better than here it is in the environment, or in a file that\napi_token_file names.",
		},
		{
			path: "shutdown_delay", live: true, value: durationValue(&c.ShutdownDelay, 0, 10*time.Minute),
			doc: "How long /readyz answers 503 before a stop begins, so that load balancers send\nno more. Everything else is served meanwhile.",
		},
		{
			path: "shutdown_timeout", value: durationValue(&c.ShutdownTimeout, 0, time.Hour), common: true,
			doc: "How long a stop may take after shutdown_delay. Attempts in flight get most of it;\nwhat is cut off costs no attempt and goes out again after the next start.",
		},
	}
}

func (c *Config) policyFields() []*field {
	return []*field{
		{
			path: "allow_private", live: true, value: prefixList(&c.AllowPrivate), common: true,
			doc: "Ranges that may be dialled although they are private, loopback or otherwise\nspecial: [10.1.0.0/16]. A tenant who may name a URL can reach all that they hold.",
		},
		{
			path: "allow_http", live: true, value: boolValue(&c.AllowHTTP), common: true,
			doc: "Admit http URLs of subscribers. Payloads and signatures then travel in the clear.",
		},
		{
			path: "nat64_prefixes", live: true, value: prefixList(&c.NAT64Prefixes),
			doc: "IPv6 prefixes that this network translates to IPv4 (RFC 6052). Addresses in them\nare judged by the IPv4 address inside. A network with a prefix of its own must\nname it, since no address shows that it is one.",
		},
		{
			path: "http3", live: true, value: http3Value(&c.HTTP3), common: true,
			doc: "HTTP/3 for deliveries: on, off, a share of the origins such as 25%, or allowlist\nfor those of http3_origins.",
		},
		{
			path: "http3_origins", live: true, value: textList(&c.HTTP3Origins, "host,…", checkOrigin),
			doc: "Origins of the allowlist: a host, or host:port.",
		},
		{
			path: "http3_hosts", value: textList(&c.HTTP3Hosts, "host,…", checkHostPattern),
			doc: "Hosts that may serve HTTP/3 for others, as an Alt-Svc header or an HTTPS record\nsays: a name, or *.suffix. The certificate must speak for the origin all the same.",
		},
		{
			path: "http3_ports", value: portList(&c.HTTP3Ports),
			doc: "UDP ports that may be used beside the origin's own.",
		},
	}
}

func (c *Config) logFields() []*field {
	return []*field{
		{
			path: "log.level", live: true, value: oneOf(&c.Log.Level, "debug", "info", "warn", "error"), common: true,
			doc: "Lowest level that is logged. No level shows payloads, secrets or paths.",
		},
		{
			path: "log.format", value: oneOf(&c.Log.Format, "text", "json"), common: true,
			doc: "Form of a line: text or json.",
		},
	}
}

func (c *Config) qlogFields() []*field {
	return []*field{
		{
			path: "qlog.dir", value: textValue(&c.Qlog.Dir, "dir", anyText),
			doc: "Directory for qlog files, empty for none.",
		},
		{
			path: "qlog.origins", value: textList(&c.Qlog.Origins, "host,…", checkOrigin),
			doc: "Origins whose connections are traced: a host, or host:port.",
		},
	}
}
