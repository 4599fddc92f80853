package api

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestAPayloadIsShownToAdminsAloneAndTheLogSaysToWhom(t *testing.T) {
	var log bytes.Buffer
	s, err := New(&fakeNode{}, Config{Tokens: []string{goodToken}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"reads", "reads-t1", "publish-t1"} {
		if resp, body := call(t, s, http.MethodGet, "/v1/deliveries/d/payload", token, ""); resp.StatusCode != 403 || strings.Contains(body, "<b/>") {
			t.Errorf("%s: %d %s", token, resp.StatusCode, body)
		}
	}
	if log.Len() != 0 {
		t.Errorf("a refused request is logged as a look: %s", log.String())
	}
	resp, body := call(t, s, http.MethodGet, "/v1/deliveries/d/payload", "admin", "")
	if resp.StatusCode != 200 || body != "<b/>" || resp.Header.Get("Content-Type") != "application/octet-stream" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	if got := log.String(); !strings.Contains(got, "what=payload_shown by=admin delivery=d") || strings.Contains(got, "<b/>") {
		t.Errorf("log: %s", got)
	}
	if resp, _ := call(t, s, http.MethodGet, "/v1/deliveries/x/payload", "admin", ""); resp.StatusCode != 404 {
		t.Errorf("an unknown one: %d", resp.StatusCode)
	}
}
