package telemetry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
)

// TestMetricsTellOfAnAlternativeThatDoesNotWork: it advertises HTTP/3 and then
// refuses the handshake. Deliveries go on over TCP, and the metrics say why.
func TestMetricsTellOfAnAlternativeThatDoesNotWork(t *testing.T) {
	e, m := node(t)
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	refuses, err := fault.ParseFault("wrong-alpn:over=udp")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := fault.Start(fault.Config{CA: ca, HTTP3: true, Faults: []fault.Fault{refuses}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	if _, _, err := e.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	in := engine.SubscriberInput{URL: new(fmt.Sprintf("https://127.0.0.1:%d/", peer.Port())), TLS: &delivery.TLSMaterial{CAPEM: ca.PEM()}}
	if _, err := e.CreateSubscriber(t.Context(), "t", in); err != nil {
		t.Fatal(err)
	}
	value := func(name, labels string) string {
		return families(t, m)["dispatcher_"+name].series["dispatcher_"+name+labels]
	}
	for n := 1; n <= 2; n++ { // the first learns of HTTP/3, the second has it tried
		if _, err := e.Publish(t.Context(), "t", engine.EventInput{Topic: "a", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "delivered", func() bool {
			return value("attempts_total", `{protocol="h2",reason="delivered"`) == fmt.Sprint(n)
		})
	}
	for _, want := range []struct{ name, labels, value string }{
		{"alternatives_broken_total", `{class="explicit"`, "1"},
		{"alternatives_broken_total", `{class="timeout"`, "0"},
		{"alternative_changes_total", `{to="broken"`, "1"},
		{"handshakes_total", `{protocol="h3",result="tls"`, "1"},
		{"handshakes_total", `{protocol="h2",result="up"`, "1"},
		{"connections", `{protocol="h2"`, "1"},
		{"connections_idle", `{protocol="h2"`, "1"},
		{"connections", `{protocol="h3"`, "0"},
		{"resends_total", `{reason="refused"`, "0"},
		{"dials_denied_total", `{rule="loopback",stage="tcp"`, "0"},
	} {
		eventually(t, want.name+want.labels+" is "+want.value, func() bool { return value(want.name, want.labels) == want.value })
	}
	if _, one := families(t, m)["dispatcher_udp_sockets"].series["dispatcher_udp_sockets 1"]; !one {
		t.Errorf("sockets: %v", families(t, m)["dispatcher_udp_sockets"].series)
	}
	for name := range families(t, m)["dispatcher_races_total"].series {
		if !strings.Contains(name, "winner=") || !strings.Contains(name, "loser=") {
			t.Errorf("a race without winner or loser: %s", name)
		}
	}
}
