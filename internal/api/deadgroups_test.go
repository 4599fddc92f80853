package api

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

func (f *fakeNode) DeadGroups(_ context.Context, filter engine.DeliveryFilter) (engine.DeadGroups, error) {
	f.filter = filter
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return engine.DeadGroups{Seen: 20_000, More: true, Groups: []engine.DeadGroup{{
		Tenant: "t", Subscriber: "s", Signature: "rejected: status 400", Reason: delivery.ReasonRejected, Count: 7, Bytes: 70, First: at, Last: at,
		Example: "e.s",
	}}}, nil
}

func TestDeadLettersAreGroupedAndTheFilterIsPassedOn(t *testing.T) {
	node := &fakeNode{}
	resp, body := call(t, setup(t, node), http.MethodGet,
		"/v1/dlq/groups?tenant=t&subscriber=s&signature=rejected%3A+status+400&since=2026-01-01T00:00:00Z", goodToken, "")
	var got DeadGroupsAnswer
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	if !got.More || got.Seen != 20_000 || len(got.Data) != 1 {
		t.Fatalf("%s", body)
	}
	if g := got.Data[0]; g.Count != 7 || g.Bytes != 70 || g.Reason != "rejected" || g.Last == nil || g.Topics == nil {
		t.Errorf("%+v", g)
	}
	if f := node.filter; f.Tenant != "t" || f.Subscriber != "s" || f.Signature != "rejected: status 400" || f.Since.IsZero() {
		t.Errorf("%+v", f)
	}
	if resp, body := call(t, setup(t, node), http.MethodGet, "/v1/dlq/groups?since=yesterday", goodToken, ""); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
