package config

import (
	"net/url"
	"strings"
)

func (c *Config) telemetryFields() []*field {
	t := &c.Telemetry
	return []*field{
		{
			path: "telemetry.otlp_endpoint", value: textValue(&t.OTLPEndpoint, "url", checkOTLP),
			doc: "URL of an OTLP receiver that takes http/protobuf, empty for no spans. Such as\nhttp://collector:4318/v1/traces. Without one, tracing costs nothing.",
		},
		{
			path: "telemetry.otlp_headers", value: secretValue(&t.OTLPHeaders, checkHeaders), shown: func() string { return t.OTLPHeaders.mask() },
			doc: "Headers for it, as name=value, separated by commas.",
		},
		{
			path: "telemetry.sample_ratio", live: true, value: floatValue(&t.SampleRatio, 0, 1, ""),
			doc: "Part of the traces begun here that is recorded, from 0 to 1. A trace that comes\nwith a publish follows its own mark.",
		},
	}
}

func checkOTLP(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return bad("must be an http or https URL without a user", "write http://collector:4318/v1/traces, and keys into otlp_headers")
	}
	return nil
}

func checkHeaders(s string) error {
	if s == "" {
		return nil
	}
	for pair := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || name == "" || strings.ContainsAny(name, " :\r\n\x00") || strings.ContainsAny(value, "\r\n\x00") {
			return bad("must be name=value, separated by commas", "write authorization=Bearer KEY")
		}
	}
	return nil
}
