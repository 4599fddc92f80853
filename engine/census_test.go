package engine

import (
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

func TestTheBacklogIsCountedWhileSomebodyAsks(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{Behaviour: testnet.Behaviour{Status: 400}})
	b.subscribe("dead", r)
	b.publish("a")
	later := EventInput{Topic: "order.created", Payload: []byte("{}"), DeliverAt: time.Now().Add(time.Hour)}
	for range 3 {
		if _, err := b.Publish(t.Context(), "t", later); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("it is dead", func() bool {
		rows, _, err := b.ListDeliveries(t.Context(), DeliveryFilter{Tenant: "t", State: "dead"}, Page{})
		return err == nil && len(rows) == 1
	})
	counted, err := b.census.count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counted.Dead != 1 || counted.Retrying != 3 || counted.Ready != 0 || counted.Oldest.IsZero() || counted.At.IsZero() {
		t.Errorf("%+v", counted)
	}
	if len(counted.Worst) != 1 || counted.Worst[0].Tenant != "t" || counted.Worst[0].Waiting != 3 || counted.Worst[0].Dead != 1 {
		t.Errorf("%+v", counted.Worst)
	}
	b.eventually("a count by itself", func() bool { return !b.Backlog().At.IsZero() })
}
