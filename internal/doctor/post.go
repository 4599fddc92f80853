package doctor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// testTopic is the topic of a node's own test events as well.
const testTopic = delivery.OperationalPrefix + "test"

// bodyShown bounds what is shown of an answer's body.
const bodyShown = 512

// post makes the signed test POST as a delivery's first attempt.
func (e *examination) post(ctx context.Context) {
	now := time.Now()
	id := "doctor_" + randomHex()
	req, err := e.request(id, now)
	if err != nil {
		e.report.add(Problem{Severity: SeverityError, Code: "signing", About: []string{"post"}, What: err.Error(), Mend: "check --scheme and the secret"})
		return
	}
	bounded, cancel := context.WithTimeout(ctx, delivery.DefaultTimeout)
	defer cancel()
	resp, trace, err := e.selector.Do(bounded, e.endpoint, delivery.ProtocolAuto, req)
	var r delivery.Result
	trace.Fill(&r)
	p := &Posted{ID: id, Protocol: trace.Protocol.String(), Remote: trace.Remote}
	if err != nil {
		r.Sent, r.Cause, r.Detail = delivery.SentAmbiguous, delivery.CauseLocal, err.Error()
		if failed, ok := errors.AsType[*delivery.SendError](err); ok {
			r.Sent, r.Cause, r.Detail = failed.Sent, failed.Cause, failed.Detail
		}
		p.Sent, p.Detail = r.Sent.String(), r.Detail
	} else {
		r.Status, r.RetryAfter, r.Date = resp.Status, resp.Header.Get("Retry-After"), resp.Header.Get("Date")
		r.Phases.FirstByte = resp.FirstByte
		p.Status, p.RetryAfter, p.Location = resp.Status, printable(r.RetryAfter), printable(resp.Header.Get("Location"))
		p.Body = printable(string(resp.Body[:min(len(resp.Body), bodyShown)]))
		for _, line := range resp.Header.Values("Alt-Svc") {
			p.AltSvc = append(p.AltSvc, printable(line))
		}
	}
	p.Phases = Phases{
		DNS: millis(r.Phases.DNS), Connect: millis(r.Phases.Connect), TLS: millis(r.Phases.TLS), QUIC: millis(r.Phases.QUIC),
		FirstByte: millis(r.Phases.FirstByte), Total: millis(time.Since(now)),
	}
	outcome := delivery.Classify(r, time.Now())
	p.Outcome, p.Reason = outcome.Class.String(), outcome.Reason.String()
	e.report.Post = p
	if outcome.Class != delivery.ClassDelivered {
		e.report.add(Problem{
			Severity: SeverityError, Code: "post_" + p.Reason, About: []string{"post"},
			What: whatCame(p, outcome), Mend: mendAnswer(p),
		})
	}
}

func (e *examination) request(id string, now time.Time) (*delivery.Request, error) {
	body := fmt.Appendf(nil, `{"type":%q,"from":"dispatcher doctor","at":%q}`, testTopic, now.UTC().Format(time.RFC3339))
	signer, err := signing.NewSigner(signing.SignerConfig{Schemes: []signing.SchemeConfig{{
		Scheme: e.config.Post.Scheme, Keys: signing.NewRing(e.config.Post.Secret),
	}}})
	if err != nil {
		return nil, err
	}
	fields, err := signer.Append([]signing.Field{
		{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "dispatcher/" + e.config.Version},
		{Name: "Webhook-Topic", Value: testTopic}, {Name: "Webhook-Attempt", Value: "1"},
	}, id, now, body)
	if err != nil {
		return nil, err
	}
	req := &delivery.Request{Path: e.target.URL.RequestURI(), Host: e.target.URL.Host, Body: body, Length: int64(len(body))}
	for _, f := range fields {
		req.Headers = append(req.Headers, delivery.Header(f))
	}
	return req, nil
}

func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// printable makes one line of what a peer wrote.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// consequences is what an outcome means for a delivery.
var consequences = map[delivery.Class]string{
	delivery.ClassRetry:     "it would be retried",
	delivery.ClassThrottled: "it would be retried later",
	delivery.ClassUnknown:   "it would be retried, and may arrive twice",
	delivery.ClassRejected:  "it would be dead at once",
	delivery.ClassGone:      "it would be dead, and the subscriber disabled",
	delivery.ClassBlocked:   "it would be dead at once",
}

func whatCame(p *Posted, outcome delivery.Outcome) string {
	consequence := consequences[outcome.Class]
	if consequence == "" {
		consequence = "it would not count as an attempt"
	}
	if p.Status == 0 {
		return fmt.Sprintf("the POST got no answer (%s): %s", p.Detail, consequence)
	}
	return fmt.Sprintf("the POST was answered with %d %s: %s", p.Status, http.StatusText(p.Status), consequence)
}

// mendAnswer says what is usually behind an answer.
func mendAnswer(p *Posted) string {
	switch p.Status {
	case 0:
		return "see the other problems; if there are none, see what the receiver logs about " + p.ID
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check that both sides have the same secret and scheme, and that the receiver verifies the body's bytes as they came"
	case http.StatusNotFound:
		return "check the path of the URL"
	case http.StatusMethodNotAllowed:
		return "check the path of the URL; the receiver must take POST there"
	case http.StatusGone:
		return "the receiver wants no more events here: remove the subscriber, or correct the URL"
	case http.StatusTooManyRequests:
		return "give the subscriber a rate_limit that the receiver can take"
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType:
		return "the receiver may refuse only the test event's content; see what it logs about " + p.ID
	}
	switch {
	case p.Status >= 300 && p.Status <= 399:
		return "redirects are not followed: register the URL that it redirects to"
	case p.Status >= 500:
		return "the receiver failed: see what it logs about " + p.ID
	}
	return "have the receiver answer with 2xx; see what it logs about " + p.ID
}
