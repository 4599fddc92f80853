package ingress

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

func TestDefaultsAreValidAndDoNotChangeTheCallersCopy(t *testing.T) {
	var cfg Config
	full := cfg.withDefaults()
	if err := full.validate(); err != nil {
		t.Error(err)
	}
	if cfg.Addr != "" || full.Addr != "127.0.0.1:8081" || full.Cache.Stale != 0 {
		t.Errorf("defaults: %+v", full)
	}
	cfg.ControlPlane = &ControlPlaneConfig{}
	if full = cfg.withDefaults(); full.Cache.Stale != 24*time.Hour {
		t.Errorf("stale with a control plane: %v", full.Cache.Stale)
	}
}

func TestConfigNamesEveryFaultOfEveryField(t *testing.T) {
	ports := Ports{Enqueuer: newFakeStore(), Spool: &countingSpool{}, Sources: newFakeSources()}
	for field, cfg := range map[string]Config{
		"cert_file":            {CertFile: "x"},
		"alt_svc_port":         {AltSvcPort: 70000},
		"backlog":              {Backlog: -1},
		"memory_body":          {MemoryBody: 2, MaxBody: 1},
		"max_body":             {MaxBody: 2 << 30, MaxSpool: 4 << 30},
		"max_spool":            {MaxSpool: 1},
		"max_memory":           {MaxMemory: 1},
		"failures.per_second":  {Failures: FailureConfig{PerSecond: -1}},
		"failures.burst":       {Failures: FailureConfig{Burst: -1}},
		"cache.ttl":            {Cache: CacheConfig{TTL: -1}},
		"cache.stale":          {Cache: CacheConfig{Stale: -1}},
		"cache.unknown":        {Cache: CacheConfig{Unknown: -1}},
		"idle_timeout":         {IdleTimeout: -1},
		"max_conns":            {MaxConns: -1},
		"decoders":             {Decoders: -1},
		"trusted_proxies[0]":   {TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
		"tenant_quota":         {TenantQuota: &RateLimit{}},
		"control_plane":        {ControlPlane: &ControlPlaneConfig{URL: "https://x", Token: signing.NewSecret("t")}},
		"control plane: url":   {ControlPlane: &ControlPlaneConfig{}},
		"control plane: token": {ControlPlane: &ControlPlaneConfig{}},
	} {
		_, err := New(cfg, ports)
		if field == "control plane: url" {
			field = "url:"
		}
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(field, "control plane: ")) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, p := range []Ports{{}, {Enqueuer: ports.Enqueuer, Spool: ports.Spool}, {Enqueuer: ports.Enqueuer, Sources: ports.Sources}} {
		if _, err := New(Config{}, p); err == nil {
			t.Errorf("accepted without its ports: %+v", p)
		}
	}
}
