package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/sched"
)

func reserve(n int) func(*SubscriberInput) {
	return func(in *SubscriberInput) { in.Reserved, in.Concurrency = &n, new(max(n, 8)) }
}

// TestReservationsThatLeaveTooLittleAreRefusedByName: field, value, rule and what
// to do about it.
func TestReservationsThatLeaveTooLittleAreRefusedByName(t *testing.T) {
	b := setup(t, func(c *Config) { c.Sched = sched.Config{MaxInFlight: 40} }) // 30 may be reserved
	r := b.receiver(testnet.Config{})
	refused := func(what string, err error, field, value string, words ...string) {
		t.Helper()
		invalid, ok := errors.AsType[*InvalidError](err)
		if !ok || len(invalid.Fields) != 1 {
			t.Fatalf("%s: %v", what, err)
		}
		f := invalid.Fields[0]
		if f.Field != field || f.Value != value || f.Hint == "" {
			t.Errorf("%s: %+v", what, f)
		}
		for _, word := range words {
			if !strings.Contains(f.Rule+" "+f.Hint, word) {
				t.Errorf("%s: %q and %q do not say %q", what, f.Rule, f.Hint, word)
			}
		}
	}
	create := func(tenant, id string, in SubscriberInput) error {
		in.ID, in.URL = &id, new(r.URL("", "/"))
		_, err := b.CreateSubscriber(t.Context(), tenant, in)
		return err
	}
	patch := func(tenant, id string, in SubscriberInput) error {
		_, err := b.UpdateSubscriber(t.Context(), tenant, id, in)
		return err
	}
	put := func(tenant string, in TenantInput) error {
		_, _, err := b.PutTenant(t.Context(), tenant, in)
		return err
	}
	accepted := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	const field = "reserved_in_flight"
	refused("below zero", create("t", "x", SubscriberInput{Reserved: new(-1)}), field, "-1", "0 (none)")
	refused("above concurrency", create("t", "x", SubscriberInput{Reserved: new(9)}), field, "9", "concurrency, which is 8")
	refused("strict", create("t", "x", SubscriberInput{Reserved: new(2), Ordering: new("strict")}), field, "2", "strict")

	accepted("it fits", create("t", "a", SubscriberInput{Reserved: new(8)}))
	refused("less concurrency than it reserves", patch("t", "a", SubscriberInput{Concurrency: new(4)}), field, "8", "which is 4")
	accepted("both at once", patch("t", "a", SubscriberInput{Concurrency: new(4), Reserved: new(4)}))
	accepted("back", patch("t", "a", SubscriberInput{Concurrency: new(8), Reserved: new(8)}))

	refused("a tenant's bound below what its subscribers reserve", put("t", TenantInput{MaxShare: 9}), "max_in_flight", "9", "reserve 8, and at most 7 of 9")
	accepted("its bound leaves a quarter", put("t", TenantInput{MaxShare: 12}))
	refused("another subscriber of it", create("t", "b", SubscriberInput{Reserved: new(2)}), field, "2", "at most 1", "max_in_flight 12", "raise")
	accepted("one slot", create("t", "b", SubscriberInput{Reserved: new(1)}))
	refused("more than its bound", put("t", TenantInput{MaxShare: 12, Reserved: 13}), field, "13", "max_in_flight")

	accepted("a tenant's reservation holds those of its subscribers", put("t", TenantInput{MaxShare: 12, Reserved: 10}))
	accepted("another tenant", put("u", TenantInput{Reserved: 15}))
	refused("beyond the node", put("u", TenantInput{Reserved: 21}), field, "21", "30 of the node's 40", "limits.in_flight")
	accepted("inside its tenant's", create("u", "c", SubscriberInput{Reserved: new(15), Concurrency: new(20)}))
	accepted("up to the last", patch("u", "c", SubscriberInput{Reserved: new(20)}))
	accepted("a third tenant", put("v", TenantInput{}))
	refused("none is left", create("v", "d", SubscriberInput{Reserved: new(1)}), field, "1", "30 already are")

	if _, err := b.PauseSubscriber(t.Context(), "u", "c"); err != nil {
		t.Fatal(err)
	}
	refused("a paused one keeps its claim", create("v", "d", SubscriberInput{Reserved: new(6)}), field, "6")
	accepted("less is always accepted", patch("u", "c", SubscriberInput{Reserved: new(1)}))
	if err := b.DeleteTenant(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	accepted("what a deleted tenant reserved is free", create("v", "d", SubscriberInput{Reserved: new(20), Concurrency: new(20)}))
}

// TestAReservationOutlivesARestartAndEndsWithItsSubscriber.
func TestAReservationOutlivesARestartAndEndsWithItsSubscriber(t *testing.T) {
	dir := t.TempDir()
	start := func() *bundle { return setup(t, func(c *Config) { c.Storage.Dir = dir }) }
	b := start()
	r := b.receiver(testnet.Config{})
	b.subscribe("a", r, reserve(3))
	b.subscribe("b", r, reserve(2))
	set := func(want int) func() bool {
		return func() bool {
			promised, kept := b.Reserved() // nothing is in flight
			return b.sched.Stats().Reserved == want && promised == want && kept == want
		}
	}
	b.eventually("both reserve", set(5))
	b.delivered(b.publish("e"), "a")
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = start()
	b.eventually("both reserve after a restart", set(5))
	if _, err := b.PauseSubscriber(t.Context(), "t", "a"); err != nil {
		t.Fatal(err)
	}
	b.eventually("a paused one does not", set(2))
	if _, err := b.ResumeSubscriber(t.Context(), "t", "a"); err != nil {
		t.Fatal(err)
	}
	b.eventually("it does again", set(5))
	if _, err := b.UpdateSubscriber(t.Context(), "t", "a", SubscriberInput{Reserved: new(7)}); err != nil {
		t.Fatal(err)
	}
	b.eventually("more", set(9))
	if err := b.DeleteSubscriber(t.Context(), "t", "a"); err != nil {
		t.Fatal(err)
	}
	b.eventually("a deleted one does not", set(2))
	if err := b.DeleteTenant(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	b.eventually("nor one of a deleted tenant", set(0))
}
