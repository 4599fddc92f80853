package api

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestProfilesAreBehindTheToken(t *testing.T) {
	s := setup(t, &fakeNode{})
	for _, name := range []string{"heap", "profile"} {
		if resp, _ := call(t, s, http.MethodGet, "/debug/pprof/"+name, "", ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", name, resp.StatusCode)
		}
	}
	resp, body := call(t, s, http.MethodGet, "/debug/pprof/heap", goodToken, "")
	if resp.StatusCode != http.StatusOK || !bytes.HasPrefix([]byte(body), []byte{0x1f, 0x8b}) {
		t.Errorf("heap: %d, %d bytes", resp.StatusCode, len(body))
	}
	if resp, _ := call(t, s, http.MethodGet, "/debug/pprof/cmdline", goodToken, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("cmdline: %d", resp.StatusCode)
	}
	for _, bad := range []string{"0", "121", "x", "-1"} {
		if resp, _ := call(t, s, http.MethodGet, "/debug/pprof/profile?seconds="+bad, goodToken, ""); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("seconds=%s: %d", bad, resp.StatusCode)
		}
	}
}

func TestACPUProfileEndsWithItsRequest(t *testing.T) {
	s := setup(t, &fakeNode{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // the second finds the first one ended
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/pprof/profile?seconds=100", nil)
		req.Header.Set("Authorization", "Bearer "+goodToken)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
	}
}
