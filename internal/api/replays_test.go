package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

func (f *fakeNode) StartReplay(_ context.Context, filter engine.DeliveryFilter, perSecond float64) (engine.ReplayJob, error) {
	f.filter = filter
	return engine.ReplayJob{ID: "r1", Filter: filter, PerSecond: perSecond, State: engine.ReplayPending, CreatedAt: time.Unix(1, 0)}, nil
}

// GetReplay knows "mine" of t1, and "former" of a tenant that had the same id.
func (f *fakeNode) GetReplay(_ context.Context, id string) (engine.ReplayJob, error) {
	job := engine.ReplayJob{
		ID: id, Filter: engine.DeliveryFilter{Tenant: "t1"}, State: engine.ReplayFailed, Why: "the tenant was deleted",
		Counted: true, Replayed: 2, PassedOver: 1, CreatedAt: time.Unix(1, 0), TenantGone: id == "former",
	}
	if id != "mine" && id != "former" {
		return job, engine.ErrNotFound
	}
	return job, nil
}

func (f *fakeNode) ListReplays(_ context.Context, tenant string, p engine.Page) ([]engine.ReplayJob, string, error) {
	f.filter, f.page = engine.DeliveryFilter{Tenant: tenant}, p
	return []engine.ReplayJob{{ID: "r1"}}, "r1", nil
}

func (f *fakeNode) CancelReplay(_ context.Context, id string) (engine.ReplayJob, error) {
	return engine.ReplayJob{ID: id, State: engine.ReplayCanceled, Replayed: 7}, nil
}

func TestReplaysAreMadeShownListedAndCanceled(t *testing.T) {
	node := &fakeNode{}
	s := setup(t, node)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/replays", `{"tenant":"t1","signature":"rejected: status 400","since":"2026-01-02T15:04:05Z","per_second":2.5}`, 202, `"per_second":2.5`},
		{"POST", "/v1/replays", `{"tenant":"t1","per_second":-1}`, 422, "per_second"},
		{"POST", "/v1/replays", `{"tenant":"t1","since":"yesterday"}`, 422, "since"},
		{"POST", "/v1/replays", `{"tenant":"t1","cursor":"x"}`, 422, "cursor"},
		{"GET", "/v1/replays/mine", "", 200, `"failure":"the tenant was deleted","tenant":"t1","total":0,"replayed":2,"passed_over":1`},
		{"GET", "/v1/replays/none", "", 404, "nothing"},
		{"GET", "/v1/replays/A%2Fb", "", 422, "id"},
		{"GET", "/v1/replays?tenant=t1&limit=3", "", 200, `"next_cursor":"r1"`},
		{"POST", "/v1/replays/r1/cancel", "", 200, `"state":"canceled"`},
	} {
		resp, body := call(t, s, c.method, c.path, goodToken, c.body)
		if resp.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, resp.StatusCode, body)
		}
	}
	if node.filter.Tenant != "t1" || node.page.Limit != 3 {
		t.Errorf("listed %+v, %+v", node.filter, node.page)
	}
	_, body := call(t, s, http.MethodPost, "/v1/replays", goodToken, `{"tenant":"t1"}`)
	if strings.Contains(body, "total") || strings.Contains(body, "ended_at") {
		t.Errorf("a replay that has not begun says %s", body)
	}
}

func TestAReplayIsItsTenantsAlone(t *testing.T) {
	s := setup(t, &fakeNode{})
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/v1/replays?tenant=t1", "reads-t1", 200},
		{"GET", "/v1/replays", "reads-t1", 403},
		{"GET", "/v1/replays/mine", "reads-t1", 200},
		{"GET", "/v1/replays/former", "reads-t1", 404},
		{"GET", "/v1/replays/former", "reads", 200},
		{"POST", "/v1/replays", "reads", 403},
		{"POST", "/v1/replays/mine/cancel", "publish-t1", 403},
	} {
		if resp, body := call(t, s, c.method, c.path, c.token, `{"tenant":"t1"}`); resp.StatusCode != c.status {
			t.Errorf("%s %s with %s: %d %s", c.method, c.path, c.token, resp.StatusCode, body)
		}
	}
}
