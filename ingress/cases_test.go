package ingress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// TestCases has one subtest for each case from a public report. What package
// signing decides is checked here for what comes of it: status, storage, logs.
func TestCases(t *testing.T) {
	for id, run := range map[string]func(*testing.T){
		"V1": caseV1, "V2": caseV2, "V4": caseV4, "V5": caseV5, "V6": caseV6, "V7": caseV7, "V8": caseV8, "V9": caseV9,
		"V10": caseV10, "V11": caseV11, "V12": caseV12, "V14": caseV14, "V16": caseV16, "V17": caseV17, "V18": caseV18,
		"V21": caseV21, "V22": caseV22, "V23": caseV23, "V24": caseV24, "Q11": caseQ11, "S11": caseS11,
	} {
		t.Run(id, run)
	}
}

var vectorTime = time.Unix(1700000000, 0)

// atVectorTime runs f in a bubble, at the clock of the vectors.
func atVectorTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(vectorTime))
		f(t)
	})
}

// vectors are the headers over vectorBody, computed by others.
var vectors = map[string]http.Header{
	"standard": {
		"Webhook-Id": {"msg_test1"}, "Webhook-Timestamp": {"1700000000"},
		"Webhook-Signature": {"v1,qKz4+T/TdLNNwLgVIFH/nTMiuwGvcp8rI09Nw/pYtCk="},
	},
	"ed25519": {
		"Webhook-Id": {"msg_test1"}, "Webhook-Timestamp": {"1700000000"},
		"Webhook-Signature": {"v1a,TswT1iTqc0TY3ozrLFMnr+HI0T2hO1Ld5paNmh0RzYPJYeorXR2jKgMs1xsGOc0Qh1WRCeR5xZ6MZ61+CCFpCg=="},
	},
	"github":  {"X-Hub-Signature-256": {"sha256=459205f6c5e3f81e91435197943c65ac6aee2ac98432da1a2ed8bdff8d7a5c83"}},
	"shopify": {"X-Shopify-Hmac-Sha256": {"RZIF9sXj+B6RQ1GXlDxlrGruKsmEMtoaLti9/416XIM="}},
	"stripe":  {"Stripe-Signature": {"t=1700000000,v1=91882e80fd629777bb12fa0ead5ca88e310625fa68b6e03d811bfcb67bc49eca"}},
	"slack": {
		"X-Slack-Request-Timestamp": {"1700000000"},
		"X-Slack-Signature":         {"v0=14258e166bddc67820ab1c2314f4e8766c20e4dc584d4df38a168b502c4351cc"},
	},
	"telnyx": {
		"Telnyx-Timestamp":         {"1700000000"},
		"Telnyx-Signature-Ed25519": {"qxzr+0d0IUxzra5ovNBfl5dMdsFgpAV9+9tAEl9pGdez5JG+nZwx4NBSkB3srjUlWUu69ObqB9PAcXQ5zFQ8AQ=="},
	},
	"discord": {
		"X-Signature-Timestamp": {"1700000000"},
		"X-Signature-Ed25519":   {"1fc1f9097c076fb03b5df29d19241a742d28e6c036ef08d0931af9bc1f9afcd5836de2917b7aed8daddd3a91bd0bd16b4440954fd5197c2e206d829c03d7ba0f"},
	},
	"hex": {"X-Signature": {"459205f6c5e3f81e91435197943c65ac6aee2ac98432da1a2ed8bdff8d7a5c83"}},
}

// Each vector under its own rule and under every other one. Headers of all are
// there, so that none fails for a missing header alone.
func caseV1(t *testing.T) {
	atVectorTime(t, func(t *testing.T) {
		n := setup(t, Config{Failures: FailureConfig{Burst: 1000}})
		for source := range vectors {
			n.expect(n.post(source, vectors[source], vectorBody), http.StatusAccepted, OutcomeBuffered)
		}
		for source := range vectors {
			for other := range vectors {
				h := vectors[other].Clone()
				// The other provider's signature, in the header of this one.
				signature := signatureOf(h)
				for name := range vectors[source] {
					if h.Get(name) == "" {
						h.Set(name, signature)
					}
				}
				if other == source || sameRule(source, other) {
					continue
				}
				if w := n.post(source, h, vectorBody); w.Code != http.StatusUnauthorized {
					t.Errorf("%s accepts the signature of %s: %d", source, other, w.Code)
				}
			}
		}
		// Shopify's is base64; the same MAC in hex is not.
		hex := http.Header{"X-Shopify-Hmac-Sha256": vectors["hex"]["X-Signature"]}
		n.expect(n.post("shopify", hex, vectorBody), http.StatusUnauthorized, OutcomeMalformed)
	})
}

func signatureOf(h http.Header) string {
	for name, values := range h {
		if strings.Contains(name, "Signature") || strings.Contains(name, "Hmac") {
			return values[0]
		}
	}
	return ""
}

// sameRule: GitHub's is the generic hex rule with a prefix, so once its header is
// renamed only the prefix tells them apart; that is covered by "malformed".
func sameRule(a, b string) bool { return a == "hex" && b == "hex" }

func caseV2(t *testing.T) {
	n := setup(t, Config{})
	raw := []byte(`{"id":"evt_1","b":1,"a":2}`)
	h := signed(t, signing.Stripe, vectorStripe, "", raw, time.Now())
	for _, body := range []string{`{"id": "evt_1", "b": 1, "a": 2}`, `{"a":2,"b":1,"id":"evt_1"}`, string(raw) + "\n"} {
		n.expect(n.post("stripe", h, []byte(body)), http.StatusUnauthorized, OutcomeMismatch)
	}
	n.expect(n.post("stripe", h, raw), http.StatusAccepted, OutcomeBuffered)
}

func caseV4(t *testing.T) {
	n := setup(t, Config{})
	form := []byte("payload=%7B%22a%22%3A1%7D")
	h := signed(t, signing.GitHub, vectorSecret, "", form, time.Now())
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	n.expect(n.post("github", h, form), http.StatusAccepted, OutcomeBuffered)
	if rows := n.store.stored(); !bytes.Equal(rows[0].stored, form) || rows[0].ContentType != "application/x-www-form-urlencoded" {
		t.Errorf("stored %q as %s", rows[0].stored, rows[0].ContentType)
	}
	decoded := signed(t, signing.GitHub, vectorSecret, "", []byte(`{"a":1}`), time.Now())
	n.expect(n.post("github", decoded, form), http.StatusUnauthorized, OutcomeMismatch)
}

func caseV5(t *testing.T) {
	n := setup(t, Config{})
	for _, sig := range []string{"sha256=abc", "sha256=", "sha256=" + strings.Repeat("zz", 32), "sha256", "=", "sha1=" + strings.Repeat("0", 40)} {
		n.expect(n.post("github", http.Header{"X-Hub-Signature-256": {sig}}, vectorBody), http.StatusUnauthorized, OutcomeMalformed)
	}
}

func caseV6(t *testing.T) {
	n := setup(t, Config{Failures: FailureConfig{Burst: 100}})
	for source := range standardSources() {
		n.expect(n.post(source, nil, vectorBody), http.StatusUnauthorized, OutcomeMissingSignature)
	}
	n.expect(n.post("github", http.Header{"X-Hub-Signature-256": {""}}, vectorBody), http.StatusUnauthorized, OutcomeMissingSignature)
}

func caseV7(t *testing.T) {
	n := setup(t, Config{})
	for _, secret := range []string{"", " ", "\t \n"} {
		s := &Source{Scheme: signing.GitHub, Secrets: signing.Secrets(secret), Destination: Destination{Type: DestinationFanOut}}
		if f := fieldsOf(t, s.Validate(0)); len(f) != 1 || f[0].Field != "secrets[0]" || f[0].Value != "***" {
			t.Errorf("secret %q: %+v", secret, f)
		}
		// And if one slips in all the same, nothing is accepted under it.
		n.sources.set("acme", "blank", s)
		n.in.Forget("acme", "blank")
		h := signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now())
		n.expect(n.post("blank", h, vectorBody), http.StatusServiceUnavailable, OutcomeSourceUnknowable)
	}
	none := &Source{Scheme: signing.GitHub, Destination: Destination{Type: DestinationFanOut}}
	if f := fieldsOf(t, none.Validate(0)); len(f) != 1 || f[0].Field != "secrets" {
		t.Errorf("no secret: %+v", f)
	}
}

func caseV8(t *testing.T) {
	var log bytes.Buffer
	n := setup(t, Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	const expected = "459205f6c5e3f81e91435197943c65ac6aee2ac98432da1a2ed8bdff8d7a5c83"
	w := n.post("github", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}, vectorBody)
	n.expect(w, http.StatusUnauthorized, OutcomeMismatch)
	for where, text := range map[string]string{"answer": w.Body.String(), "headers": fmt.Sprint(w.Header()), "log": log.String()} {
		if strings.Contains(text, expected) || strings.Contains(text, expected[:16]) || strings.Contains(text, vectorSecret) || strings.Contains(text, "Zoë") {
			t.Errorf("the %s gives something away: %s", where, text)
		}
	}
	if !strings.Contains(log.String(), "mismatch") {
		t.Error("the log does not tell of it")
	}
}

func caseV9(t *testing.T) {
	n := setup(t, Config{})
	for i, secret := range []string{vectorSecond, vectorStandard} {
		h := signed(t, signing.Standard, secret, fmt.Sprintf("msg_%d", i), vectorBody, time.Now())
		n.expect(n.post("rotating", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
	}
}

func caseV10(t *testing.T) {
	n := setup(t, Config{})
	for _, ts := range []string{"abc", "", strings.Repeat("1", 30), "-1", "1e9", " 1"} {
		h := genuine(t, "msg_1", vectorBody)
		h.Set("Webhook-Timestamp", ts)
		if w := n.post("standard", h, vectorBody); w.Code != http.StatusUnauthorized {
			t.Errorf("timestamp %q: %d", ts, w.Code)
		}
	}
}

func caseV11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.set("acme", "exact", &Source{
			Scheme: signing.Standard, Secrets: signing.Secrets(vectorStandard), Tolerance: new(Duration(0)),
			Destination: Destination{Type: DestinationFanOut},
		})
		h := genuine(t, "msg_1", vectorBody)
		n.expect(n.post("exact", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
		time.Sleep(2 * time.Second)
		n.expect(n.post("exact", h, vectorBody), http.StatusUnauthorized, OutcomeTimestamp)
	})
}

func caseV12(t *testing.T) {
	atVectorTime(t, func(t *testing.T) {
		n := setup(t, Config{})
		good := strings.TrimPrefix(vectors["stripe"].Get("Stripe-Signature"), "t=1700000000,")
		h := http.Header{"Stripe-Signature": {"t,v1,t=1700000000," + good}}
		n.expect(n.post("stripe", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
	})
}

func caseV14(t *testing.T) {
	s := &Source{Scheme: signing.Standard, Secrets: signing.Secrets(vectorSecond, "v1,"+vectorStandard), Destination: Destination{Type: DestinationFanOut}}
	f := fieldsOf(t, s.Validate(0))
	if len(f) != 1 || f[0].Field != "secrets[1]" || !strings.Contains(f[0].Rule+f[0].Hint, `"v1,"`) {
		t.Errorf("got %+v", f)
	}
}

func caseV16(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		body := []byte(`{"event_id":"Ev1","type":"event_callback"}`)
		h := signed(t, signing.Slack, vectorSlack, "", body, time.Now())
		n.expect(n.post("slack", h, body), http.StatusAccepted, OutcomeBuffered)
		time.Sleep(6 * time.Minute)
		n.expect(n.post("slack", h, body), http.StatusUnauthorized, OutcomeTimestamp)
	})
}

func caseV17(t *testing.T) {
	n := setup(t, Config{})
	h := genuine(t, "msg_17", vectorBody)
	first := n.post("standard", h, vectorBody)
	n.expect(first, http.StatusAccepted, OutcomeBuffered)
	second := n.post("standard", h, vectorBody)
	n.expect(second, http.StatusOK, OutcomeDeduplicated)
	a, b := answerOf(t, first), answerOf(t, second)
	if a.ID != b.ID || b.Status != "deduplicated" || len(n.store.stored()) != 1 {
		t.Errorf("answers %+v, %+v, %d rows", a, b, len(n.store.stored()))
	}
}

func caseV18(t *testing.T) {
	n := setup(t, Config{})
	for _, body := range []string{`{"type":"deactivated"}`, `{"type":"url_verification","challenge":"x"}`, `{"type":1}`} {
		for _, source := range []string{"standard", "slack", "discord", "hex"} {
			n.expect(n.post(source, nil, []byte(body)), http.StatusUnauthorized, OutcomeMissingSignature)
		}
	}
	if n.store.enqueue.Load() != 0 {
		t.Error("an unsigned event reached the store")
	}
	// The source works on.
	n.expect(n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
}

func caseV21(t *testing.T) {
	n := setup(t, Config{})
	form := []byte("CallSid=CA1&CallStatus=ringing")
	h := signed(t, signing.Twilio, vectorSecret, "", form, time.Now())
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	// TLS ended at the proxy: Host, scheme and port of the request are its own.
	send := func(h http.Header) *httptest.ResponseRecorder {
		r := request("twilio", h, bytes.NewReader(form))
		r.Host = "internal:8081"
		return n.serve(r)
	}
	n.expect(send(h), http.StatusAccepted, OutcomeBuffered)
	forged := h.Clone()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Original-Host", "Forwarded"} {
		forged.Set(name, "host=evil.test")
	}
	n.expect(send(forged), http.StatusOK, OutcomeDeduplicated)
	// A signature for the URL that the forged header claims is worth nothing.
	cfg := signing.SchemeConfig{Scheme: signing.Twilio, Keys: signing.NewRing(signing.NewSecret(vectorSecret))}
	cfg.PublicURL = "https://evil.test/webhook/acme/twilio"
	out, err := signing.Sign(cfg, signing.Message{Body: form, ContentType: "application/x-www-form-urlencoded"})
	if err != nil {
		t.Fatal(err)
	}
	forged.Set("X-Twilio-Signature", out.Header.Get("X-Twilio-Signature"))
	forged.Set("X-Forwarded-Host", "evil.test")
	n.expect(send(forged), http.StatusUnauthorized, OutcomeMismatch)
}

func caseV22(t *testing.T) {
	for _, key := range []string{"abc", strings.Repeat("z", 64), vectorHex[:62], vectorHex + "00", vectorPublic} {
		s := &Source{Scheme: signing.Discord, Secrets: signing.Secrets(key), Destination: Destination{Type: DestinationFanOut}}
		f := fieldsOf(t, s.Validate(0))
		if len(f) != 1 || f[0].Field != "secrets[0]" || strings.Contains(f[0].Error(), key) {
			t.Errorf("key %q: %+v", key, f)
		}
	}
}

// gzipBomb is n MiB of zeros, as members of one MiB each: about a thousandth.
func gzipBomb(t testing.TB, n int) []byte {
	t.Helper()
	var member bytes.Buffer
	w := gzip.NewWriter(&member)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(member.Bytes(), n)
}

// zstdBomb is n blocks of 128 KiB of zeros in one frame, four bytes each
// (RFC 8878 section 3.1.1).
func zstdBomb(n int) []byte {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3} // no content size; a window of 128 KiB
	for i := range n {
		header := uint32(1<<1 | 128<<10<<3) // a run of one byte
		if i == n-1 {
			header |= 1
		}
		frame = append(frame, byte(header), byte(header>>8), byte(header>>16), 0)
	}
	return frame
}

func caseV23(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "packed", &Source{
		Scheme: signing.GitHub, Secrets: signing.Secrets(vectorSecret), Destination: Destination{Type: DestinationFanOut},
		Decompress: true, MaxBody: 4 << 20,
	})
	for _, c := range []struct {
		encoding string
		body     []byte
		status   int
		outcome  Outcome
	}{
		{"gzip", gzipBomb(t, 128), 413, OutcomeTooLarge},
		{"zstd", zstdBomb(4096), 413, OutcomeTooLarge},
		{"foo", []byte("x"), 415, OutcomeContentEncoding},
	} {
		body := c.body
		h := signed(t, signing.GitHub, vectorSecret, "", body, time.Now())
		h.Set("Content-Encoding", c.encoding)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := n.post("packed", h, body)
		runtime.ReadMemStats(&after)
		n.expect(w, c.status, c.outcome)
		// Everything allocated on the way, freed or not: the source's limit, a
		// decoder with its window, and slack; far below what the body claims.
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 32<<20 {
			t.Errorf("%s: %d bytes in, %d MiB allocated", c.encoding, len(body), spent>>20)
		}
	}
	if n.store.asked.Load() > 2 || n.store.enqueue.Load() != 0 {
		t.Error("a bomb got further than its body")
	}
}

func caseV24(t *testing.T) {
	n := setup(t, Config{})
	const copies = 50
	h := genuine(t, "msg_24", vectorBody)
	codes := make([]int, copies)
	var wg sync.WaitGroup
	for i := range copies {
		wg.Go(func() { codes[i] = n.post("standard", h, vectorBody).Code })
	}
	wg.Wait()
	buffered := 0
	for _, code := range codes {
		switch code {
		case http.StatusAccepted:
			buffered++
		case http.StatusOK:
		default:
			t.Errorf("a copy got %d", code)
		}
	}
	if rows := len(n.store.stored()); rows != 1 || buffered != 1 {
		t.Errorf("%d rows, %d times 202", rows, buffered)
	}
}

func caseQ11(t *testing.T) {
	n := setup(t, Config{})
	n.expect(n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
	full := &delivery.StoreFullError{Free: 1, Watermark: 2, RetryAfter: time.Minute}
	n.store.setFail(full)
	w := n.post("standard", genuine(t, "msg_2", vectorBody), vectorBody)
	n.expect(w, http.StatusServiceUnavailable, OutcomeStoreFull)
	if got := w.Header().Get("Retry-After"); got != "30" {
		t.Errorf("Retry-After %q", got)
	}
	// Once it is known, bodies are not even read.
	n.store.setReady(full)
	body := &countingBody{r: bytes.NewReader(vectorBody)}
	w = n.serve(request("standard", genuine(t, "msg_2", vectorBody), body))
	n.expect(w, http.StatusServiceUnavailable, OutcomeNotReady)
	if body.read.Load() != 0 || w.Header().Get("Retry-After") != "30" {
		t.Errorf("%d bytes read, Retry-After %q", body.read.Load(), w.Header().Get("Retry-After"))
	}
	// There is room again, and the provider's retry is the first that is stored.
	n.store.setFail(nil)
	n.store.setReady(nil)
	n.expect(n.post("standard", genuine(t, "msg_2", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
	if len(n.store.stored()) != 2 {
		t.Errorf("%d rows", len(n.store.stored()))
	}
}

func caseS11(t *testing.T) {
	n := setup(t, Config{})
	body := []byte("{\"text\":\"Zoë 😊\u2028\",  \"n\": 1.0}\r\n")
	w := n.post("standard", genuine(t, "msg_11", body), body)
	n.expect(w, http.StatusAccepted, OutcomeBuffered)
	if got := n.store.stored()[0].stored; !bytes.Equal(got, body) {
		t.Errorf("stored %q, want %q", got, body)
	}
}

// fieldsOf returns the faults of a source.
func fieldsOf(t *testing.T, err error) []FieldError {
	t.Helper()
	e, ok := errors.AsType[*SourceError](err)
	if !ok {
		t.Fatalf("got %v, want a *SourceError", err)
	}
	return e.Fields
}
