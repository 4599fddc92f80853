package api

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// Delivery is a delivery as lists show it.
type Delivery struct {
	ID          string  `json:"id" doc:"{event key}.{subscriber}"`
	EventID     string  `json:"event_id" doc:"webhook-id on the wire"`
	Tenant      string  `json:"tenant" doc:"whose event it is"`
	Subscriber  string  `json:"subscriber" doc:"whom it goes to"`
	Topic       string  `json:"topic" doc:"of the event"`
	State       string  `json:"state" enum:"received,leased,attempted,retrying,held,delivered,dead,canceled" doc:"where in its life it is"`
	Reason      string  `json:"reason,omitempty" doc:"why it is in that state"`
	Signature   string  `json:"signature,omitempty" doc:"with dead: what it died of, as in the groups of dead letters"`
	Attempts    int     `json:"attempts" doc:"made so far"`
	NextAttempt *string `json:"next_attempt,omitempty" format:"date-time" doc:"absent when none is planned"`
	AcceptedAt  *string `json:"accepted_at,omitempty" format:"date-time" doc:"when the event was stored"`
	UpdatedAt   *string `json:"updated_at,omitempty" format:"date-time" doc:"its last transition"`
	Size        int64   `json:"size" doc:"payload bytes"`
	TraceParent string  `json:"traceparent,omitempty" doc:"trace of the publish, in which the attempts are"`
	PayloadHash string  `json:"payload_hash,omitempty" doc:"SHA-256 of the payload, hex; in lists with dead alone, until the page has read 32 MiB"`
}

// DeliveryDetail is a delivery with its timeline.
type DeliveryDetail struct {
	Delivery
	Timeline []Entry `json:"timeline" doc:"every transition, oldest first"`
}

// Entry is one transition.
type Entry struct {
	At      string   `json:"at" format:"date-time" doc:"when"`
	State   string   `json:"state" doc:"entered then"`
	Reason  string   `json:"reason,omitempty" doc:"why"`
	Node    string   `json:"node,omitempty" doc:"which node did it"`
	Token   uint64   `json:"token,omitempty" doc:"fencing token: the node's epoch"`
	Next    *string  `json:"next_attempt,omitempty" format:"date-time" doc:"planned then"`
	Note    string   `json:"note,omitempty" doc:"in words"`
	Attempt *Attempt `json:"attempt,omitempty" doc:"with attempted: what happened"`
}

// Attempt is one try.
type Attempt struct {
	Number    int    `json:"number" doc:"1, 2 …"`
	Protocol  string `json:"protocol,omitempty" doc:"h1, h2 or h3; absent when no connection came up"`
	Status    int    `json:"status,omitempty" doc:"HTTP status; absent without an answer"`
	Class     string `json:"class" doc:"what it means: delivered, retry, throttled, unknown, rejected, gone, blocked, interrupted"`
	Sent      string `json:"sent,omitempty" doc:"without an answer: never, refused, ambiguous"`
	Cause     string `json:"cause,omitempty" doc:"without an answer: where it failed"`
	Detail    string `json:"detail,omitempty" doc:"the cause in words"`
	Reused    bool   `json:"reused_connection" doc:"no handshake was needed"`
	Fallback  bool   `json:"fallback,omitempty" doc:"a second try inside this attempt, proven safe"`
	RaceLoser string `json:"race_loser,omitempty" doc:"verdict of the connection that lost the race"`
	Remote    string `json:"remote,omitempty" doc:"address and port that it went to"`
	Location  string `json:"location,omitempty" doc:"target of a redirect, not followed"`
	StartedAt string `json:"started_at" format:"date-time" doc:"when it began"`
	Total     string `json:"total" doc:"duration"`
	Phases    Phases `json:"phases_ms" doc:"where the time went, in milliseconds"`
	BytesSent int64  `json:"bytes_sent" doc:"of the request"`
	Response  string `json:"response,omitempty" doc:"the answer's body, up to 16 KiB"`
	Truncated bool   `json:"response_truncated,omitempty" doc:"the answer was longer"`
}

// Phases are durations in milliseconds.
type Phases struct {
	DNS       float64 `json:"dns,omitempty" doc:"name lookup"`
	Connect   float64 `json:"connect,omitempty" doc:"TCP handshake"`
	TLS       float64 `json:"tls,omitempty" doc:"TLS handshake"`
	QUIC      float64 `json:"quic,omitempty" doc:"QUIC handshake"`
	FirstByte float64 `json:"first_byte,omitempty" doc:"from the request to the first byte of the answer"`
	Total     float64 `json:"total" doc:"all of it"`
}

func deliveryOut(d engine.DeliveryInfo) Delivery {
	out := Delivery{
		ID: d.ID, Tenant: d.Tenant, Subscriber: d.Subscriber, State: d.State.String(), Attempts: d.Attempts,
		NextAttempt: rfc3339(d.NextAttempt), UpdatedAt: rfc3339(d.UpdatedAt), PayloadHash: d.PayloadHash,
		Signature: d.Signature,
	}
	if d.Reason != delivery.ReasonNone {
		out.Reason = d.Reason.String()
	}
	if e := d.Event; e != nil {
		out.EventID, out.Topic, out.Size, out.AcceptedAt, out.TraceParent = e.ID, e.Topic, e.Size, rfc3339(e.AcceptedAt()), e.TraceParent
	}
	return out
}

func entryOut(e delivery.TimelineEntry) Entry {
	out := Entry{
		At: e.At.UTC().Format(time.RFC3339Nano), State: e.State.String(), Node: string(e.Lease.Node),
		Token: uint64(e.Lease.Epoch), Next: rfc3339(e.Next), Note: e.Note,
	}
	if e.Reason != delivery.ReasonNone {
		out.Reason = e.Reason.String()
	}
	if e.Attempt != nil {
		out.Attempt = attemptOut(e.Attempt)
	}
	return out
}

func attemptOut(a *delivery.Attempt) *Attempt {
	r := &a.Result
	out := &Attempt{
		Number: a.Number, Status: r.Status, Class: a.Outcome.Class.String(), Detail: r.Detail, Reused: r.Reused,
		Fallback: r.Fallback, RaceLoser: r.RaceLoser, Remote: r.Remote, Location: r.Location,
		StartedAt: a.StartedAt.UTC().Format(time.RFC3339Nano), Total: r.Phases.Total.Round(time.Microsecond).String(),
		BytesSent: r.BytesSent, Response: string(r.Body), Truncated: r.Truncated,
		Phases: Phases{
			DNS: millis(r.Phases.DNS), Connect: millis(r.Phases.Connect), TLS: millis(r.Phases.TLS),
			QUIC: millis(r.Phases.QUIC), FirstByte: millis(r.Phases.FirstByte), Total: millis(r.Phases.Total),
		},
	}
	if r.Protocol != delivery.ProtocolNone {
		out.Protocol = r.Protocol.String()
	}
	if r.Status == 0 {
		out.Sent, out.Cause = r.Sent.String(), r.Cause.String()
	}
	return out
}
