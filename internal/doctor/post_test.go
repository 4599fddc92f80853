package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/transport"
)

func TestAnswerSaysWhatADeliveryWouldBe(t *testing.T) {
	cases := []struct {
		behaviour testnet.Behaviour
		want      string
		outcome   string
		mend      string
	}{
		{testnet.Behaviour{Status: 204}, "", "delivered", ""},
		{testnet.Behaviour{Status: 302, Location: "https://new.example/moved"}, "error post_redirect", "retry", "redirects are not followed"},
		{testnet.Behaviour{Status: 400, Body: "bad\n\x1b[31mred"}, "error post_rejected", "rejected", "test event's content"},
		{testnet.Behaviour{Status: 404}, "error post_status_mendable", "retry", "path"},
		{testnet.Behaviour{Status: 405}, "error post_rejected", "rejected", "take POST"},
		{testnet.Behaviour{Status: 410}, "error post_gone", "gone", "no more events"},
		{testnet.Behaviour{Status: 429, RetryAfter: "7"}, "error post_throttled", "throttled", "rate_limit"},
		{testnet.Behaviour{Status: 503}, "error post_status_retry", "retry", "the receiver failed"},
		{testnet.Behaviour{Drop: true}, "error post_unknown", "unknown", "receiver logs"},
	}
	b := setup(t)
	r := b.receiver(verifying(t, secret), testnet.Leaf{})
	b.posting()
	b.config.Transport.QUICHandshakeTimeout = 40 * time.Millisecond // there is none
	for _, c := range cases {
		r.Behave(c.behaviour)
		got := b.examine()
		if c.want == "" {
			b.wants(got, true)
			continue
		}
		b.wants(got, false, c.want)
		if got.Post.Outcome != c.outcome || !strings.Contains(got.Problems[0].Mend, c.mend) {
			t.Errorf("%d: %s, mend %q", c.behaviour.Status, got.Post.Outcome, got.Problems[0].Mend)
		}
		if strings.ContainsAny(got.Post.Body, "\n\x1b") {
			t.Errorf("the answer's body reaches the terminal as it is: %q", got.Post.Body)
		}
	}
	if c := r.Tally().Counts(); c.Requests != int64(len(cases)) || c.ResentAttempts != 0 {
		t.Errorf("%+v", c)
	}
}

func TestWrongSecretShowsAs401WithTheWayOut(t *testing.T) {
	b := setup(t)
	r := b.receiver(verifying(t, "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="), testnet.Leaf{})
	b.posting()
	got := b.examine()
	b.wants(got, false, "error post_status_mendable")
	if got.Post.Status != 401 || !strings.Contains(got.Problems[0].Mend, "same secret and scheme") {
		t.Errorf("%+v", got.Problems)
	}
	if r.Tally().Counts().SignatureFailures != 1 {
		t.Error("the receiver did not check it")
	}
}

func TestConfigurationFaultsNameTheirFieldAndNoSecret(t *testing.T) {
	for field, spoil := range map[string]func(*Config){
		"url":     func(c *Config) { c.URL = "" },
		"timeout": func(c *Config) { c.Timeout = 1 },
		"secret":  func(c *Config) { c.Post = &Post{Secret: signing.NewSecret("whsec_ s3cret")} },
		"scheme":  func(c *Config) { c.Post = &Post{Scheme: "none", Secret: signing.NewSecret("s3cret")} },
	} {
		b := setup(t)
		b.config.URL = "https://hook.example/"
		spoil(&b.config)
		_, err := Examine(t.Context(), b.config)
		if _, ok := errors.AsType[*ConfigError](err); !ok || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestReportIsJSONWithListsThatAreNeverNull(t *testing.T) {
	b := setup(t)
	b.config.URL = "https://127.1/"
	text, err := json.Marshal(b.examine())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"works":false`, `"addresses":[]`, `"http3":[]`, `"problems":[{"severity":"error","code":"numeric_host"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestInterruptionIsAnErrorAndLeavesNothingBehind(t *testing.T) {
	b := setup(t)
	r := b.receiver(verifying(t, secret), testnet.Leaf{})
	b.posting()
	r.Behave(testnet.Behaviour{Delay: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	b.config.Transport.Observer.Handshake = func(transport.HandshakeEvent) { cancel() } // the POST is about to be sent
	if _, err := Examine(ctx, b.config); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
