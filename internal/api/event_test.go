package api

import (
	"net/http"
	"strings"
	"testing"
)

// An event of a source is found by its id, colon and all, and shows what goes on
// with it.
func TestEventOfASourceIsShownWithItsHeaders(t *testing.T) {
	s := setup(t, &fakeNode{})
	for _, id := range []string{"gh:d%2F1", "gh%3Ad%2F1"} {
		resp, body := call(t, s, http.MethodGet, "/v1/tenants/t1/events/"+id, goodToken, "")
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"headers":{"X-Github-Event":["push"],"X-Many":["1","2"]}`) {
			t.Errorf("%s: %d %s", id, resp.StatusCode, body)
		}
	}
}
