package engine

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// bundle is a node and what tests need around it.
type bundle struct {
	*Engine
	t  *testing.T
	ca *testnet.CA
}

func setup(t *testing.T, adjust ...func(*Config)) *bundle {
	t.Helper()
	config := Config{
		Guard:    netguard.Config{AllowPrivate: loopback, AllowHTTP: true},
		Storage:  storage.Config{Dir: t.TempDir(), Watermark: storage.Watermark{Bytes: -1}},
		Selector: protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}},
	}
	for _, f := range adjust {
		f(&config)
	}
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{Engine: e, t: t, ca: ca}
	if _, _, err := e.PutTenant(t.Context(), "t", TenantInput{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// receiver starts a TLS receiver with a certificate of the bundle's CA.
func (b *bundle) receiver(config testnet.Config) *testnet.Receiver {
	b.t.Helper()
	cert, err := b.ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		b.t.Fatal(err)
	}
	config.Certificate = &cert
	r, err := testnet.Start(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	return r
}

// subscribe registers a receiver; adjust may change the input.
func (b *bundle) subscribe(id string, r *testnet.Receiver, adjust ...func(*SubscriberInput)) *delivery.Subscriber {
	b.t.Helper()
	in := SubscriberInput{ID: &id, URL: new(r.URL("", "/hook")), TLS: &delivery.TLSMaterial{CAPEM: b.ca.PEM()}}
	for _, f := range adjust {
		f(&in)
	}
	s, err := b.CreateSubscriber(b.t.Context(), "t", in)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bundle) publish(id string) Receipt {
	b.t.Helper()
	r, err := b.Publish(b.t.Context(), "t", EventInput{ID: id, Topic: "order.created", Payload: []byte(`{"id":"` + id + `"}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) eventually(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			b.t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

func (b *bundle) delivery(r Receipt, sub string) (DeliveryInfo, []delivery.TimelineEntry) {
	b.t.Helper()
	info, timeline, err := b.GetDelivery(b.t.Context(), delivery.ID{Event: r.Key, Subscriber: sub}.String())
	if err != nil {
		b.t.Fatal(err)
	}
	return info, timeline
}

// delivered waits until one delivery is, and returns its timeline.
func (b *bundle) delivered(r Receipt, sub string) []delivery.TimelineEntry {
	b.t.Helper()
	var timeline []delivery.TimelineEntry
	b.eventually("delivered", func() bool {
		var info DeliveryInfo
		info, timeline = b.delivery(r, sub)
		return info.State == delivery.StateDelivered
	})
	return timeline
}

func TestPublishedEventIsDeliveredSignedAndOnItsTimeline(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	var headers http.Header
	r := b.receiver(testnet.Config{Verify: func(h http.Header, _ []byte) error {
		mu.Lock()
		defer mu.Unlock()
		headers = h.Clone()
		return nil
	}})
	b.subscribe("s", r)
	receipt := b.publish("evt-1")
	if receipt.Deliveries != 1 || receipt.ID != "evt-1" {
		t.Fatalf("%+v", receipt)
	}
	timeline := b.delivered(receipt, "s")
	var states []string
	for i, entry := range timeline {
		states = append(states, entry.State.String())
		if i > 0 && !timeline[i-1].State.CanMove(entry.State) {
			t.Errorf("the timeline moves from %v to %v", timeline[i-1].State, entry.State)
		}
	}
	if got := strings.Join(states, " "); got != "received leased attempted delivered" {
		t.Errorf("timeline: %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, want := range map[string]string{
		"Webhook-Id": "evt-1", "Webhook-Topic": "order.created", "Webhook-Attempt": "1",
		"Content-Type": "application/json", "User-Agent": "dispatcher/devel",
	} {
		if got := headers.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestOfficialStandardWebhooksLibraryVerifiesWhatWeSend(t *testing.T) {
	b := setup(t)
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	official, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := b.receiver(testnet.Config{Verify: func(h http.Header, body []byte) error { return official.Verify(body, h) }})
	b.subscribe("s", r, func(in *SubscriberInput) { in.Secret = new(secret) })
	b.delivered(b.publish("evt-1"), "s")

	// During a rotation a receiver with either secret verifies.
	rotated, err := b.RotateSecret(t.Context(), "t", "s", RotateInput{})
	if err != nil {
		t.Fatal(err)
	}
	if newest := rotated.Signing[0].Secrets[0].Value; newest == secret || len(rotated.Signing[0].Secrets) != 2 {
		t.Fatalf("%d secrets after the rotation", len(rotated.Signing[0].Secrets))
	}
	b.delivered(b.publish("evt-2"), "s")
	if c := r.Tally().Counts(); c.SignatureFailures != 0 || c.Accepted != 2 {
		t.Errorf("%+v", c)
	}
}

func TestAfterAltSvcLaterDeliveriesGoOverHTTP3(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{HTTP3: true})
	b.subscribe("s", r)
	b.delivered(b.publish("first"), "s")
	b.delivered(b.publish("second"), "s") // over warm TCP, while QUIC is tried beside it
	// A connection that is live may still have to be proven; one that waits is.
	b.eventually("HTTP/3 is warm", func() bool { _, idle := b.Connections(delivery.ProtocolHTTP3); return idle > 0 })
	const later = 50
	receipts := make([]Receipt, later)
	for i := range receipts {
		receipts[i] = b.publish("later-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
	}
	for _, receipt := range receipts {
		b.delivered(receipt, "s")
	}
	c := r.Tally().Counts()
	if c.H3 != later || c.TCPConnections != 1 || c.ResentAttempts != 0 || c.Duplicates != 0 {
		t.Errorf("%+v", c)
	}
}

func TestWithUDPDeadTheDeliveryArrivesOverTCP(t *testing.T) {
	b := setup(t)
	// A port that swallows UDP: the race is decided by the stagger alone.
	r := b.receiver(testnet.Config{AltSvcPort: true})
	b.subscribe("s", r)
	b.delivered(b.publish("learn"), "s")
	b.eventually("nothing is in flight", func() bool { return b.InFlight() == 0 })
	for i := range 5 {
		timeline := b.delivered(b.publish("next-"+string(rune('a'+i))), "s")
		for _, entry := range timeline {
			if a := entry.Attempt; a != nil && (a.Result.Protocol != delivery.ProtocolHTTP2 || a.Number != 1) {
				t.Errorf("attempt %d went over %v", a.Number, a.Result.Protocol)
			}
		}
	}
	if c := r.Tally().Counts(); c.ResentAttempts != 0 || c.Duplicates != 0 || c.Requests != 6 {
		t.Errorf("%+v", c)
	}
}

func TestPrivateAddressIsRefusedNamingRuleAndSetting(t *testing.T) {
	b := setup(t, func(c *Config) { c.Guard.AllowPrivate = nil })
	_, err := b.CreateSubscriber(t.Context(), "t", SubscriberInput{URL: new("https://10.1.2.3/hook")})
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok || len(invalid.Fields) != 1 || invalid.Fields[0].Field != "url" {
		t.Fatalf("%v", err)
	}
	text := invalid.Error()
	for _, want := range []string{"10.1.2.3", "private", "allow_private"} {
		if !strings.Contains(text, want) {
			t.Errorf("the error does not name %q: %s", want, text)
		}
	}
}

func TestOneNotTwoPOSTsPerAttemptThroughFailures(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{HTTP3: true, Behaviour: testnet.Behaviour{FailEvery: 3, RetryAfter: "0"}})
	b.subscribe("s", r, func(in *SubscriberInput) {
		// Long enough that chance alone never gives one event all the failures.
		in.Retry = &delivery.Retry{Schedule: slices.Repeat([]time.Duration{time.Millisecond}, 40)}
	})
	var receipts []Receipt
	for i := range 60 {
		receipts = append(receipts, b.publish("evt-"+string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	for _, receipt := range receipts {
		b.delivered(receipt, "s")
	}
	c := r.Tally().Counts()
	if c.ResentAttempts != 0 || c.Duplicates != 0 || c.Accepted != 60 || c.Requests <= 60 {
		t.Errorf("%+v", c)
	}
}

func TestGoneDisablesOnceHoldsTheRestAndTellsTheOperator(t *testing.T) {
	b := setup(t)
	operator := b.receiver(testnet.Config{})
	b.subscribe("operator", operator, func(in *SubscriberInput) { in.Topics = &[]string{TopicSubscriberDisabled} })
	gone := b.receiver(testnet.Config{Behaviour: testnet.Behaviour{Status: http.StatusGone}})
	b.subscribe("gone", gone)
	first := b.publish("one")
	b.eventually("disabled", func() bool {
		s, _, err := b.GetSubscriber(t.Context(), "t", "gone")
		return err == nil && s.Status == delivery.SubscriberDisabled && s.StatusReason == delivery.ReasonGone
	})
	if info, _ := b.delivery(first, "gone"); info.State != delivery.StateDead || info.Reason != delivery.ReasonGone {
		t.Errorf("%v %v", info.State, info.Reason)
	}
	if info, _ := b.delivery(b.publish("two"), "gone"); info.State != delivery.StateHeld {
		t.Errorf("a new event for a disabled subscriber is %v", info.State)
	}
	b.eventually("the operator hears of it", func() bool { return operator.Tally().Counts().Accepted == 1 })
	gone.Behave(testnet.Behaviour{})
	if _, err := b.ResumeSubscriber(t.Context(), "t", "gone"); err != nil {
		t.Fatal(err)
	}
	b.eventually("the held one is delivered", func() bool { return gone.Tally().Has("two") })
	replayed, err := b.ReplayDelivery(t.Context(), delivery.ID{Event: first.Key, Subscriber: "gone"}.String(), false)
	if err != nil {
		t.Fatal(err, replayed)
	}
	b.delivered(first, "gone")
	if c := operator.Tally().Counts(); c.Accepted != 1 {
		t.Errorf("%d notices", c.Accepted)
	}
}

func TestDedupeConflictAndUnknownNames(t *testing.T) {
	b := setup(t)
	b.subscribe("s", b.receiver(testnet.Config{}))
	first := b.publish("evt-1")
	again := b.publish("evt-1")
	if !again.Deduplicated || again.Key != first.Key {
		t.Errorf("%+v", again)
	}
	_, err := b.Publish(t.Context(), "t", EventInput{ID: "evt-1", Topic: "order.created", Payload: []byte(`{"other":1}`)})
	if _, conflict := errors.AsType[*ConflictError](err); !conflict {
		t.Errorf("the same id with other content: %v", err)
	}
	if _, err := b.Publish(t.Context(), "nobody", EventInput{Topic: "a", Payload: []byte("1")}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown tenant: %v", err)
	}
	_, err = b.Publish(t.Context(), "t", EventInput{Topic: "a", Payload: []byte("1"), Subscribers: []string{"nobody"}})
	if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Fields[0].Field != "subscribers[0]" {
		t.Errorf("unknown subscriber: %v", err)
	}
}

func TestRestartGoesOnWhereItStopped(t *testing.T) {
	dir := t.TempDir()
	b := setup(t, func(c *Config) { c.Storage.Dir = dir })
	r := b.receiver(testnet.Config{})
	b.subscribe("s", r)
	if _, err := b.PauseSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	receipt := b.publish("evt-1")
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := setup(t, func(c *Config) { c.Storage.Dir = dir })
	if info, _ := again.delivery(receipt, "s"); info.State != delivery.StateHeld {
		t.Errorf("after the restart: %v", info.State)
	}
	if _, err := again.ResumeSubscriber(t.Context(), "t", "s"); err != nil {
		t.Fatal(err)
	}
	again.delivered(receipt, "s")
}
