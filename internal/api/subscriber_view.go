package api

import (
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// Subscriber is a subscriber on the wire. Secret fields are filled by the one
// answer that made them.
type Subscriber struct {
	ID                   string        `json:"id" doc:"chosen by you, or made"`
	URL                  string        `json:"url" doc:"where to deliver"`
	Topics               []string      `json:"topics" doc:"patterns"`
	Secret               string        `json:"secret,omitempty" doc:"shown once, by the answer that made it"`
	PublicKey            string        `json:"public_key,omitempty" doc:"of an Ed25519 scheme"`
	Signing              []SigningView `json:"signing" doc:"one or two schemes"`
	TLS                  *TLSView      `json:"tls,omitempty" doc:"own CA and client certificate"`
	Headers              []string      `json:"headers,omitempty" doc:"names of the extra headers; values are write-only"`
	Ordering             string        `json:"ordering" doc:"key, strict or none"`
	Concurrency          int           `json:"concurrency" doc:"attempts in flight"`
	Reserved             int           `json:"reserved_in_flight,omitempty" doc:"attempts in flight that nobody else can take; absent = none"`
	RateLimit            *RateLimit    `json:"rate_limit,omitempty" doc:"absent = none"`
	Retry                RetryView     `json:"retry" doc:"the ladder"`
	GiveUpAfter          int           `json:"give_up_after,omitempty" doc:"attempts; absent = the ladder's end"`
	DisableAfter         Duration      `json:"disable_after"`
	DisableAfterFailures int           `json:"disable_after_failures,omitempty" doc:"in a row; absent = off"`
	Timeout              Duration      `json:"timeout"`
	Protocol             string        `json:"protocol" doc:"auto, h3, tcp, h2 or h1"`
	Priority             string        `json:"priority" doc:"high, normal or low"`
	Enabled              bool          `json:"enabled" doc:"false: deliveries are held"`
	Status               string        `json:"status" doc:"active, paused or disabled"`
	StatusReason         string        `json:"status_reason,omitempty" doc:"why it is paused or disabled"`
	CreatedAt            *string       `json:"created_at" format:"date-time" doc:"when it was made"`
	UpdatedAt            *string       `json:"updated_at" format:"date-time" doc:"the last change"`

	Breaker      string  `json:"breaker,omitempty" doc:"closed, open or half_open"`
	InFlight     *int    `json:"in_flight,omitempty" doc:"attempts now"`
	Waiting      string  `json:"waiting,omitempty" doc:"why nothing goes now"`
	NextDue      *string `json:"next_due,omitempty" format:"date-time" doc:"the next attempt"`
	FailingSince *string `json:"failing_since,omitempty" format:"date-time" doc:"absent = the last attempt succeeded"`
	LastSuccess  *string `json:"last_success,omitempty" format:"date-time" doc:"absent = none yet"`
	Consecutive  int     `json:"consecutive_failures,omitempty" doc:"in a row"`
}

// SigningView is one scheme of a signing list.
type SigningView struct {
	Scheme    string  `json:"scheme" doc:"how it is signed"`
	Header    string  `json:"header,omitempty" doc:"name of the signature header, where it was chosen"`
	Secret    string  `json:"secret,omitempty" doc:"shown once, by the answer that made it"`
	PublicKey string  `json:"public_key,omitempty" doc:"of an Ed25519 scheme"`
	Secrets   int     `json:"secrets" doc:"how many are valid now"`
	OldUntil  *string `json:"old_secret_until,omitempty" format:"date-time" doc:"when the replaced one ends"`
}

// TLSView says what TLS material there is, without it.
type TLSView struct {
	CA                bool   `json:"ca" doc:"there is an own CA"`
	ClientCertificate bool   `json:"client_certificate" doc:"there is a client certificate"`
	CAPEM             string `json:"ca_pem,omitempty" doc:"the own CA"`
}

// RetryView is a retry ladder.
type RetryView struct {
	Schedule []Duration `json:"schedule,omitempty" doc:"waits after attempt 1, 2 …"`
	Base     *Duration  `json:"base,omitempty"`
	Factor   float64    `json:"factor,omitempty" doc:"growth"`
	Max      *Duration  `json:"max,omitempty"`
	Attempts int        `json:"attempts,omitempty" doc:"in all"`
	MaxAge   Duration   `json:"max_age"`
}

func subscriberOut(s *delivery.Subscriber) Subscriber {
	out := Subscriber{
		ID: s.ID, URL: s.URL, Topics: s.Topics, Ordering: s.Ordering.String(), Concurrency: s.Concurrency, Reserved: s.Reserved,
		Retry: retryOut(s.Retry), GiveUpAfter: s.GiveUpAfter, DisableAfter: Duration(s.DisableAfter),
		DisableAfterFailures: s.DisableAfterFailures, Timeout: Duration(s.Timeout), Protocol: s.Protocol.String(),
		Priority: s.Priority.String(), Enabled: s.Status == delivery.SubscriberActive, Status: s.Status.String(),
		CreatedAt: rfc3339(s.CreatedAt), UpdatedAt: rfc3339(s.UpdatedAt), Signing: []SigningView{},
	}
	if s.StatusReason != delivery.ReasonNone {
		out.StatusReason = s.StatusReason.String()
	}
	if s.RateLimit.PerSecond > 0 {
		out.RateLimit = &RateLimit{PerSecond: s.RateLimit.PerSecond, Burst: s.RateLimit.Burst}
	}
	if s.TLS != nil {
		out.TLS = &TLSView{CA: len(s.TLS.CAPEM) > 0, ClientCertificate: len(s.TLS.ClientCertPEM) > 0, CAPEM: string(s.TLS.CAPEM)}
	}
	for name := range s.Headers {
		out.Headers = append(out.Headers, name)
	}
	slices.Sort(out.Headers)
	now := time.Now()
	for _, scheme := range s.Signing {
		out.Signing = append(out.Signing, signingOut(scheme, now))
	}
	if len(out.Signing) > 0 {
		out.PublicKey = out.Signing[0].PublicKey
	}
	return out
}

func signingOut(s delivery.SigningScheme, now time.Time) SigningView {
	v := SigningView{Scheme: s.Scheme, Header: s.Header}
	for i, secret := range s.Secrets {
		if secret.ExpiresAt.IsZero() || secret.ExpiresAt.After(now) {
			v.Secrets++
			if i > 0 && v.OldUntil == nil {
				v.OldUntil = rfc3339(secret.ExpiresAt)
			}
		}
	}
	if s.Scheme == string(signing.StandardEd25519) && len(s.Secrets) > 0 {
		v.PublicKey, _ = signing.PublicKey(signing.NewSecret(s.Secrets[0].Value))
	}
	return v
}

func retryOut(r delivery.Retry) RetryView {
	v := RetryView{MaxAge: Duration(r.MaxAge)}
	if v.MaxAge == 0 {
		v.MaxAge = Duration(delivery.DefaultMaxAge)
	}
	if r.Base > 0 {
		base, most := Duration(r.Base), Duration(r.Max)
		v.Base, v.Factor, v.Attempts = &base, r.Factor, r.Attempts
		if most > 0 {
			v.Max = &most
		}
		return v
	}
	schedule := r.Schedule
	if len(schedule) == 0 {
		schedule = delivery.DefaultSchedule
	}
	for _, d := range schedule {
		v.Schedule = append(v.Schedule, Duration(d))
	}
	return v
}

// withSecrets shows every newest secret: only for the answer that made them.
func withSecrets(out Subscriber, s *delivery.Subscriber) Subscriber {
	for i := range out.Signing {
		out.Signing[i].Secret = newest(s, i)
	}
	out.Secret = newest(s, 0)
	return out
}

// withNewSecret shows the secret that a rotation made.
func withNewSecret(out Subscriber, s *delivery.Subscriber, scheme string) Subscriber {
	for i := range out.Signing {
		if scheme == "" && i == 0 || out.Signing[i].Scheme == scheme {
			out.Signing[i].Secret = newest(s, i)
			out.Secret = out.Signing[i].Secret
		}
	}
	return out
}

func newest(s *delivery.Subscriber, scheme int) string {
	if scheme >= len(s.Signing) || len(s.Signing[scheme].Secrets) == 0 {
		return ""
	}
	return s.Signing[scheme].Secrets[0].Value
}

func withHealth(out Subscriber, h engine.SubscriberStatus) Subscriber {
	inFlight := h.InFlight
	out.Breaker, out.InFlight, out.Consecutive = h.Breaker, &inFlight, h.Consecutive
	if h.Waiting != delivery.ReasonNone {
		out.Waiting = h.Waiting.String()
	}
	out.NextDue, out.FailingSince, out.LastSuccess = rfc3339(h.NextDue), rfc3339(h.FailingSince), rfc3339(h.LastSuccess)
	return out
}

func durationOf(d Duration) time.Duration { return time.Duration(d) }

func durationPtr(d *Duration) *time.Duration {
	if d == nil {
		return nil
	}
	v := time.Duration(*d)
	return &v
}
