package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Topics of the events that the dispatcher publishes about itself. A subscriber
// hears of them that names one, or [delivery.OperationalPrefix] with "*". Their
// payloads are [Envelope]s around the type that each names; docs/operations.md shows
// them.
const (
	TopicSubscriberDisabled = delivery.OperationalPrefix + "subscriber.disabled"    // SubscriberDisabled
	TopicBreakerOpened      = delivery.OperationalPrefix + "breaker.opened"         // BreakerOpened
	TopicBreakerClosed      = delivery.OperationalPrefix + "breaker.closed"         // BreakerClosed
	TopicDeadLetters        = delivery.OperationalPrefix + "dead_letters.growing"   // DeadLettersGrowing
	TopicDiskFull           = delivery.OperationalPrefix + "disk.watermark_reached" // DiskFull
	TopicDiskRoom           = delivery.OperationalPrefix + "disk.watermark_left"    // DiskRoom
)

// Other topics of the dispatcher's own. They are no alarms: a test and a handover to
// an origin are somebody's delivery, and when they fail that is told like for any.
// See [originTopic], too.
const topicTest = delivery.OperationalPrefix + "test"

// OperationalTopics lists the topics of alarms.
func OperationalTopics() []string {
	return []string{
		TopicSubscriberDisabled, TopicBreakerOpened, TopicBreakerClosed, TopicDeadLetters, TopicDiskFull, TopicDiskRoom,
	}
}

// isAlarm reports whether a topic is that of an alarm. What happens to deliveries of
// alarms makes no alarms, so that nothing can go in circles.
func isAlarm(topic string) bool {
	return delivery.IsOperational(topic) && topic != topicTest && topic != originTopic
}

// Envelope is the payload of every operational event.
type Envelope struct {
	Type string `json:"type"` // the topic
	Data any    `json:"data"`
}

// SubscriberDisabled: a subscriber answered 410 or failed for too long. What comes
// for it is held until it is resumed.
type SubscriberDisabled struct {
	Subscriber string    `json:"subscriber"`
	Reason     string    `json:"reason"` // gone, failing_too_long or too_many_failures
	At         time.Time `json:"at"`
}

// BreakerOpened: deliveries to a subscriber pause because it fails.
type BreakerOpened struct {
	Subscriber string    `json:"subscriber"`
	Why        string    `json:"why"` // see [sched.BreakerWhy]
	At         time.Time `json:"at"`
	RetryAt    time.Time `json:"retry_at"` // when one attempt tries it again
}

// BreakerClosed: a subscriber whose breaker had opened has been well for [calm].
type BreakerClosed struct {
	Subscriber string    `json:"subscriber"`
	OpenedAt   time.Time `json:"opened_at"`
	At         time.Time `json:"at"` // when it closed
}

// DeadLettersGrowing: deliveries to a subscriber ended as dead letters.
type DeadLettersGrowing struct {
	Subscriber string    `json:"subscriber"`
	Count      int64     `json:"count"` // since Since
	Since      time.Time `json:"since"`
	Reason     string    `json:"reason"` // of the newest
	At         time.Time `json:"at"`     // when the newest died
}

// DiskFull: the free space is below the watermark; publishes are refused.
type DiskFull struct {
	Node       string    `json:"node"`
	FreeBytes  uint64    `json:"free_bytes"`
	TotalBytes uint64    `json:"total_bytes"`
	At         time.Time `json:"at"`
}

// DiskRoom: the free space has been above the watermark again for [calm].
type DiskRoom struct {
	Node       string    `json:"node"`
	FreeBytes  uint64    `json:"free_bytes"`
	TotalBytes uint64    `json:"total_bytes"`
	FullSince  time.Time `json:"full_since"`
	At         time.Time `json:"at"` // when there was room
}

// stamp is a time as payloads show it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Operations is what an operator hears of the node.
type Operations struct {
	// Tenant is the id of the tenant that hears of the node itself: of its disk.
	// Default: none does, since what is true of a node is no tenant's business.
	Tenant string
	// Observed: something became of an operational event. It must be quick.
	Observed func(topic string, result OperationalResult)
}

// OperationalResult is what became of an operational event.
type OperationalResult string

// Results.
const (
	OperationalPublished OperationalResult = "published" // it is in the queue
	OperationalDelayed   OperationalResult = "delayed"   // the store refused it; it is tried again
	OperationalDropped   OperationalResult = "dropped"   // it cannot be published, or too many wait
)

// OperationalResults lists the results.
func OperationalResults() []OperationalResult {
	return []OperationalResult{OperationalPublished, OperationalDelayed, OperationalDropped}
}

const operationalTimeout = 10 * time.Second

// publishOperational publishes to whoever named the topic, on a full disk, too.
func (e *Engine) publishOperational(ctx context.Context, tenant delivery.TenantNum, topic string, data any) error {
	t, err := e.directory.Tenant(tenant)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(Envelope{Type: topic, Data: data})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, operationalTimeout)
	defer cancel()
	in := EventInput{Topic: topic, Payload: payload, operational: true, urgent: true}
	return e.PublishBatch(ctx, t.ID, []EventInput{in})[0].Err
}
