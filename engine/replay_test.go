package engine

import (
	"context"
	"net/http"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// deadOnes publishes to a receiver that rejects, until all are dead letters.
func (b *bundle) deadOnes(r *testnet.Receiver, sub string, ids ...string) {
	b.t.Helper()
	r.Behave(testnet.Behaviour{Status: http.StatusBadRequest})
	for _, id := range ids {
		receipt := b.publish(id)
		b.eventually("dead", func() bool {
			info, _ := b.delivery(receipt, sub)
			return info.State == delivery.StateDead
		})
	}
	r.Behave(testnet.Behaviour{})
}

func TestAReplayThatEndsWhileItWaitsForItsRateKeepsWhatItWaitedFor(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{})
	s := b.subscribe("s", r)
	b.deadOnes(r, "s", "one", "two", "three")
	rows, err := b.store.DeadLetters(t.Context(), storage.Filter{Tenant: s.Tenant, Subscriber: s.Num}, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var refs []storage.DeliveryRef
	for _, item := range rows.Items {
		refs = append(refs, storage.DeliveryRef{Event: item.Event, Subscriber: item.Subscriber})
	}
	// The third would come after the deadline, which the limiter sees at once.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := b.replayRefs(ctx, refs, false, rate.NewLimiter(rate.Every(time.Hour), 2))
	if err == nil || n != 2 {
		t.Fatalf("%d replayed, %v", n, err)
	}
	b.eventually("the two are delivered", func() bool { return r.Tally().Has("two") && r.Tally().Has("three") })
	left, err := b.DeadGroups(t.Context(), DeliveryFilter{Tenant: "t"})
	if err != nil || left.Seen != 1 || left.Groups[0].Signature != "rejected: status 400" || left.Groups[0].Bytes == 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestASignatureNarrowsToDeadLettersAlone(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{})
	b.subscribe("s", r)
	b.deadOnes(r, "s", "one")
	b.delivered(b.publish("fine"), "s")
	filter := DeliveryFilter{Tenant: "t", Signature: "rejected: status 400"}
	list, _, err := b.ListDeliveries(t.Context(), filter, Page{})
	if err != nil || len(list) != 1 || list[0].State != delivery.StateDead || list[0].Event.ID != "one" || len(list[0].PayloadHash) != 64 {
		t.Errorf("%+v, %v", list, err)
	}
	filter.Signature = "rejected: status 418"
	if list, _, err := b.ListDeliveries(t.Context(), filter, Page{}); err != nil || len(list) != 0 {
		t.Errorf("another signature: %+v, %v", list, err)
	}
	filter.State = "delivered"
	if _, _, err := b.ListDeliveries(t.Context(), filter, Page{}); err == nil {
		t.Error("a delivered one has no signature")
	}
}

func TestATraceWithoutIDsIsNoTrace(t *testing.T) {
	for _, bad := range []string{
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "junk", "",
	} {
		if got := traceParent(bad); got != "" {
			t.Errorf("%q is kept as %q", bad, got)
		}
	}
}
