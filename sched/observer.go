package sched

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Observer gets typed events. Nil funcs are skipped. They are called outside
// all locks, on the goroutine that did the work, and must be quick.
type Observer struct {
	// AttemptFinished: an attempt ended and its outcome was handed over.
	AttemptFinished func(AttemptFinished)
	// Moved: a delivery was moved without an attempt (expired, canceled, parked).
	Moved func(Decided)
	// BreakerChanged: a subscriber's circuit opened, half-opened or closed.
	BreakerChanged func(BreakerChanged)
	// Disabled: a subscriber is to be disabled; once per time it happens.
	Disabled func(Disabled)
	// Stalled: the queue refused a commit; nothing is sent until Resume.
	Stalled func(err error)
	// Resumed: the queue is ready again.
	Resumed func()
	// ReadFailed: a read of the queue failed and is tried again.
	ReadFailed func(sub delivery.SubscriberNum, err error)
	// ClockStepped: the wall clock was set, by this much.
	ClockStepped func(by time.Duration)
}

// AttemptFinished is one ended attempt.
type AttemptFinished struct {
	Subscriber *delivery.Subscriber
	Event      *delivery.Event
	Attempt    *delivery.Attempt
	Next       delivery.Next
	Reason     delivery.Reason // why Next: the outcome's, or exhausted, expired
	Due        time.Time       // with NextRetry
	Lateness   time.Duration   // from when the row could be sent to when it was
	Prior      bool            // a dead node may have sent it before
}

// Decided is a delivery that moved without an attempt.
type Decided struct {
	Subscriber delivery.SubscriberNum
	Tenant     delivery.TenantNum
	Event      delivery.EventKey
	Next       delivery.Next
	Reason     delivery.Reason
}

// BreakerChanged is a transition of a subscriber's circuit.
type BreakerChanged struct {
	Subscriber delivery.SubscriberNum
	Tenant     delivery.TenantNum
	From, To   delivery.BreakerState
	Why        BreakerWhy
	OpenUntil  time.Time // with BreakerOpen
	// Topic is that of the event whose attempt changed it; "" without an attempt.
	Topic string
}

// Disabled is a subscriber that is to be disabled.
type Disabled struct {
	Subscriber delivery.SubscriberNum
	Tenant     delivery.TenantNum
	Reason     delivery.Reason // gone, failing_too_long or too_many_failures
	At         time.Time
}

func (o *Observer) attemptFinished(e AttemptFinished) {
	if o.AttemptFinished != nil {
		o.AttemptFinished(e)
	}
}

func (o *Observer) moved(e Decided) {
	if o.Moved != nil {
		o.Moved(e)
	}
}

func (o *Observer) breakerChanged(e BreakerChanged) {
	if o.BreakerChanged != nil {
		o.BreakerChanged(e)
	}
}

func (o *Observer) disabled(e Disabled) {
	if o.Disabled != nil {
		o.Disabled(e)
	}
}

func (o *Observer) stalled(err error) {
	if o.Stalled != nil {
		o.Stalled(err)
	}
}

func (o *Observer) resumed() {
	if o.Resumed != nil {
		o.Resumed()
	}
}

func (o *Observer) readFailed(sub delivery.SubscriberNum, err error) {
	if o.ReadFailed != nil {
		o.ReadFailed(sub, err)
	}
}

func (o *Observer) clockStepped(by time.Duration) {
	if o.ClockStepped != nil {
		o.ClockStepped(by)
	}
}
