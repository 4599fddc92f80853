package testnet

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bundle struct {
	*Receiver
	h1, h2, h3 http.RoundTripper
}

func setup(t *testing.T, config Config) bundle {
	t.Helper()
	ca, err := NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	config.Certificate, config.HTTP3 = &cert, true
	r, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	client := func(protos ...string) *http.Transport {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), NextProtos: protos}, Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(protos[0] == "http/1.1")
		tr.Protocols.SetHTTP2(protos[0] == "h2")
		return tr
	}
	b := bundle{Receiver: r, h1: client("http/1.1"), h2: client("h2"), h3: &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
	t.Cleanup(func() {
		for _, rt := range []http.RoundTripper{b.h1, b.h2, b.h3} {
			if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
				c.CloseIdleConnections()
			}
			if c, ok := rt.(interface{ Close() error }); ok {
				_ = c.Close()
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b bundle) post(t *testing.T, rt http.RoundTripper, id, attempt string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL("", "/hook"), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Attempt", attempt)
	resp, err := rt.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return resp, err
}

func TestReceiverCountsEveryProtocolAndAdvertisesOverTCPOnly(t *testing.T) {
	b := setup(t, Config{})
	for i, rt := range []http.RoundTripper{b.h1, b.h2, b.h3} {
		resp, err := b.post(t, rt, "evt"+string(rune('a'+i)), "1")
		if err != nil {
			t.Fatal(err)
		}
		if advertised := resp.Header.Get("Alt-Svc") != ""; advertised != (i < 2) {
			t.Errorf("h%d: Alt-Svc %q", i+1, resp.Header.Get("Alt-Svc"))
		}
	}
	c := b.Tally().Counts()
	if c.H1 != 1 || c.H2 != 1 || c.H3 != 1 || c.Accepted != 3 || c.Duplicates != 0 || c.TCPConnections != 2 || c.QUICConnections != 1 {
		t.Errorf("%+v", c)
	}
}

func TestReceiverTellsDuplicatesFromResentAttempts(t *testing.T) {
	b := setup(t, Config{})
	for _, try := range [][2]string{{"e1", "1"}, {"e1", "1"}, {"e1", "2"}, {"e2", "1"}} {
		if _, err := b.post(t, b.h2, try[0], try[1]); err != nil {
			t.Fatal(err)
		}
	}
	c := b.Tally().Counts()
	if c.Requests != 4 || c.Accepted != 2 || c.Duplicates != 2 || c.ResentAttempts != 1 {
		t.Errorf("%+v", c)
	}
	if !b.Tally().Has("e2") || b.Tally().Has("e3") {
		t.Error("Has is wrong")
	}
}

func TestReceiverBehavesAsTold(t *testing.T) {
	b := setup(t, Config{Behaviour: Behaviour{FailFirst: 1, RetryAfter: "1"}})
	resp, err := b.post(t, b.h1, "e1", "1")
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Fatalf("%v %v", resp, err)
	}
	resp, err = b.post(t, b.h3, "e1", "2")
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Retry-After") != "" {
		t.Fatalf("%v %v", resp, err)
	}
	b.Behave(Behaviour{Drop: true})
	for i, rt := range []http.RoundTripper{b.h1, b.h2, b.h3} {
		if _, err := b.post(t, rt, "e2", "1"); err == nil {
			t.Errorf("h%d: a dropped request was answered", i+1)
		}
	}
	if c := b.Tally().Counts(); c.Accepted != 1 || b.Tally().Has("e2") {
		t.Errorf("%+v", c)
	}
}

func TestReceiverRefusesBadSignatures(t *testing.T) {
	b := setup(t, Config{Verify: func(http.Header, []byte) error { return errors.New("no") }})
	resp, err := b.post(t, b.h2, "e1", "1")
	if err != nil || resp.StatusCode != 401 {
		t.Fatalf("%v %v", resp, err)
	}
	if c := b.Tally().Counts(); c.SignatureFailures != 1 || c.Accepted != 0 {
		t.Errorf("%+v", c)
	}
}

func TestParseBehaviourNamesWhatItDoesNotKnow(t *testing.T) {
	b, err := ParseBehaviour("status=503, retry-after=1,delay=2s,drop,fail-first=3,drip=1s,drip-bytes=5")
	if err != nil || b.Status != 503 || b.RetryAfter != "1" || !b.Drop || b.FailFirst != 3 || b.DripBytes != 5 {
		t.Errorf("%+v %v", b, err)
	}
	for _, bad := range []string{"status=99", "status=x", "delay=soon", "explode"} {
		if _, err := ParseBehaviour(bad); err == nil || !strings.Contains(err.Error(), strings.SplitN(bad, "=", 2)[0]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
