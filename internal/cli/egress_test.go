package cli

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/dispatcher-engine/dispatcher/internal/config"
)

func TestEgressSettingsReachTheEngine(t *testing.T) {
	c := config.Default()
	v4, v6 := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")
	c.Egress.SourceIPv4, c.Egress.SourceIPv6 = v4, v6
	c.Egress.Proxy, c.Egress.NoProxy = config.NewSecret("http://proxy.example:3128"), []string{".corp.example"}
	got := assemble(c, "test", slog.New(slog.DiscardHandler)).engine
	if got.Egress.Source4 != v4 || got.Egress.Source6 != v6 {
		t.Errorf("%+v", got.Egress)
	}
	if got.Guard.Proxy != "http://proxy.example:3128" || len(got.Guard.NoProxy) != 1 {
		t.Errorf("proxy %q, %q", got.Guard.Proxy, got.Guard.NoProxy)
	}
}
