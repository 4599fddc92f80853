package api

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A publish that passes the muxes by is answered as they would answer it, whoever
// asks and however the path is written.
func TestPublishesAreAnsweredAsByTheMuxes(t *testing.T) {
	direct, muxed := setup(t, &fakeNode{}), setup(t, &fakeNode{})
	tokens := append(slices.Sorted(maps.Keys(fakeTokens)), "", "expired", "stranger", goodToken, "other")
	passed := 0
	for _, path := range []string{
		"t1/events", "t2/events", "none/events", "A_z-9/events", "t1/events?x=1", // and now what the muxes are for
		"t1/events/", "t1//events", "/events", "../t1/events", "./events", "t1%2Fevents", "t%31/events",
		"t.1/events", "t~/events", "t1/events/batch", "t1/event",
	} {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			for _, token := range tokens {
				answer := func(h http.Handler) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(t.Context(), method, "/v1/tenants/"+path, strings.NewReader(`{"id":"e","topic":"a","payload":1}`))
					r.Header.Set("Authorization", "Bearer "+token)
					if _, ok := publishedFor(r); ok && h == direct {
						passed++
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w
				}
				got, want := answer(direct), answer(muxed.handler)
				if got.Code != want.Code || got.Body.String() != want.Body.String() || !maps.EqualFunc(got.Header(), want.Header(), slices.Equal) {
					t.Errorf("%s %s with token %q:\n%d %v %s\nby the muxes\n%d %v %s", method, path, token,
						got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
				}
			}
		}
	}
	if want := 5 * len(tokens); passed != want {
		t.Errorf("%d requests passed the muxes by, not %d", passed, want)
	}
}
