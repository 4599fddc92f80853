package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// ledger is what a receiver saw of its clients.
type ledger struct {
	mu   sync.Mutex
	rows []testnet.Seen
}

func (l *ledger) add(s testnet.Seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, s)
}

func (l *ledger) all() []testnet.Seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.rows)
}

// material returns a subscriber's TLS material: the CA, and a client
// certificate with a name unless that is empty.
func (b *bundle) material(ca []byte, client string) *delivery.TLSMaterial {
	b.t.Helper()
	m := &delivery.TLSMaterial{CAPEM: ca}
	if client == "" {
		return m
	}
	cert, err := b.ca.Issue(testnet.Leaf{Names: []string{client}, Client: true})
	if err != nil {
		b.t.Fatal(err)
	}
	if m.ClientCertPEM, m.ClientKeyPEM, err = testnet.EncodeKeyPair(cert); err != nil {
		b.t.Fatal(err)
	}
	return m
}

func TestEachSubscriberShowsItsOwnCertificateOverEveryProtocol(t *testing.T) {
	b := setup(t)
	var seen ledger
	r := b.receiver(testnet.Config{HTTP3: true, ClientCAs: b.ca, OnRequest: seen.add})
	protocols := []string{"h1", "h2", "h3"}
	for _, client := range []string{"alpha", "beta"} {
		material := b.material(b.ca.PEM(), client+".client.test")
		for _, protocol := range protocols {
			b.subscribe(client+"-"+protocol, r, func(in *SubscriberInput) {
				in.TLS, in.Protocol, in.Topics = material, &protocol, &[]string{client + "." + protocol}
			})
		}
	}
	for round := range 3 {
		for _, client := range []string{"alpha", "beta"} {
			for _, protocol := range protocols {
				receipt, err := b.Publish(t.Context(), "t", EventInput{
					ID: fmt.Sprintf("%s-%s-%d", client, protocol, round), Topic: client + "." + protocol, Payload: []byte(`{}`),
				})
				if err != nil {
					t.Fatal(err)
				}
				b.delivered(receipt, client+"-"+protocol)
			}
		}
	}
	rows := seen.all()
	if len(rows) != 18 {
		t.Fatalf("%d requests", len(rows))
	}
	owner := map[string]string{} // of a connection
	for _, s := range rows {
		if want := s.Topic[:len(s.Topic)-len(".h1")] + ".client.test"; s.Client != want || s.Topic[len(s.Topic)-2:] != s.Protocol {
			t.Errorf("%s came with the certificate of %q over %s", s.Topic, s.Client, s.Protocol)
		}
		if s.Protocol == "h3" {
			continue // all of one UDP socket; the certificate tells connections apart
		}
		if was, ok := owner[s.Remote]; ok && was != s.Client {
			t.Errorf("%s and %s shared a connection", was, s.Client)
		}
		owner[s.Remote] = s.Client
	}
	// Over TCP both protocols of a subscriber's identity are connections of
	// their own; over QUIC each identity has one.
	if c := r.Tally().Counts(); c.QUICConnections != 2 || c.TCPConnections != 4 {
		t.Errorf("%d QUIC and %d TCP connections", c.QUICConnections, c.TCPConnections)
	}
}

func TestWithoutTheCertificateThatIsDemandedNothingIsDelivered(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{HTTP3: true, ClientCAs: b.ca})
	for _, protocol := range []string{"h1", "h2", "h3"} {
		b.subscribe(protocol, r, func(in *SubscriberInput) { in.Protocol = &protocol })
		a := b.attempted(b.publishTo(protocol), protocol)
		// In TLS 1.3 the refusal comes after the request has left. Where the reset
		// of the connection overtakes the alert, "reset" is all that is known.
		named := a.Result.Cause == delivery.CauseTLS || a.Result.Cause == delivery.CauseReset
		if a.Result.Status != 0 || !named || a.Outcome.Class == delivery.ClassDelivered {
			t.Errorf("%s: status %d, %v %v: %s", protocol, a.Result.Status, a.Result.Cause, a.Outcome.Class, a.Result.Detail)
		}
	}
	if c := r.Tally().Counts(); c.Requests != 0 {
		t.Errorf("%+v", c)
	}
}

// TestTenantsWithDifferentCAsNeverShareAConnection: one origin, three ideas of
// who may speak for it. A warm connection that one tenant has verified is of no
// use to the others, over TCP or QUIC.
func TestTenantsWithDifferentCAsNeverShareAConnection(t *testing.T) {
	b := setup(t)
	other, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	r := b.receiver(testnet.Config{HTTP3: true})
	cas := map[string][]byte{"good": b.ca.PEM(), "both": append(slices.Clone(b.ca.PEM()), other.PEM()...), "wrong": other.PEM()}
	for tenant, ca := range cas {
		if _, _, err := b.PutTenant(t.Context(), tenant, TenantInput{}); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range []string{"h2", "h3"} {
			in := SubscriberInput{
				ID: new("s-" + protocol), URL: new(r.URL("", "/hook")), TLS: b.material(ca, ""), Protocol: &protocol,
			}
			if _, err := b.CreateSubscriber(t.Context(), tenant, in); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tenant := range []string{"good", "both", "wrong", "good"} {
		for _, protocol := range []string{"h2", "h3"} {
			receipt, err := b.Publish(t.Context(), tenant, EventInput{
				Topic: "a", Payload: []byte(`{}`), Subscribers: []string{"s-" + protocol},
			})
			if err != nil {
				t.Fatal(err)
			}
			if tenant != "wrong" {
				b.delivered(receipt, "s-"+protocol)
				continue
			}
			a := b.attempted(receipt, "s-"+protocol)
			if a.Result.Cause != delivery.CauseTLS || a.Result.Sent != delivery.SentNever || a.Outcome.Reason != delivery.ReasonTLSFailed {
				t.Errorf("wrong CA over %s: %v %v %v: %s", protocol, a.Result.Cause, a.Result.Sent, a.Outcome.Reason, a.Result.Detail)
			}
		}
	}
	// "good" and "both" have one connection each over either protocol; the
	// handshakes of "wrong" are refused by us.
	c := r.Tally().Counts()
	if c.Requests != 6 || c.TCPConnections != 3 || c.Duplicates != 0 || c.ResentAttempts != 0 {
		t.Errorf("%+v", c)
	}
	if live, _ := b.Connections(delivery.ProtocolHTTP3); live != 2 {
		t.Errorf("%d HTTP/3 connections are up", live)
	}
	rows, _, err := b.Protocol(t.Context(), r.Addr())
	if err != nil || len(rows) != 3 {
		t.Errorf("%d rows of protocol memory, %v", len(rows), err)
	}
}
