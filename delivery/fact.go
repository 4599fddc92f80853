package delivery

import "time"

// Place says in which part of the queue a row stands.
type Place uint8

// Places of a row. The numbers are stored.
const (
	PlaceReady  Place = 0 // Q: may go now, FIFO by sequence inside its lane
	PlaceRetry  Place = 1 // R: waits for a due time
	PlaceParked Place = 2 // K: waits for an earlier row of its ordering key
)

// Row is one pending delivery as it stands in the queue. Its location (Place,
// Lane, Due, Seq) is never overwritten: a row moves to a new location with a
// fresh sequence.
type Row struct {
	Subscriber SubscriberNum
	Event      EventKey
	Place      Place
	Lane       Priority
	Seq        Seq
	Due        time.Time // with PlaceRetry; millisecond precision
	Key        KeyHash   // ordering key; 0 = free
	Attempts   int       // tries so far, over replays too
	Replayed   bool      // re-entered by a replay
	// Base is how many of the attempts came before the last replay: it began the
	// ladder anew.
	Base int
	// First is the sequence the delivery entered the queue with. It decides the
	// order inside one ordering key, across retries and parking.
	First Seq
	// LeasedBy is the epoch in which the row was handed out, 0 = never. A row
	// with an epoch below the current one may have been sent.
	LeasedBy Epoch
	// EnteredAt is when the delivery entered the queue (publish or replay); its
	// maximum age counts from here.
	EnteredAt time.Time
}

// Fact is a typed record of a change. The implementations are in this file and
// no others exist.
type Fact interface{ fact() }

// Target is one subscriber an event is for.
type Target struct {
	Subscriber SubscriberNum
	Lane       Priority
	Key        KeyHash
	Leased     bool      // fast path: handed to the actor in the same breath
	Due        time.Time // zero = now (Event.DeliverAt otherwise)
}

// Dedupe is the scope and content of an event's dedupe row.
type Dedupe struct {
	Source  string   // "" = the publish API, else the ingress source
	ID      string   // the publisher's or provider's id
	Content [16]byte // hash over what must be equal for "the same event again"
	// Body also refuses the same content under another id (ingress dedupe_body).
	Body bool
}

// Published: an event was accepted, with everybody it is for.
type Published struct {
	Lease   Lease
	Event   *Event
	Dedupe  *Dedupe // nil = no deduplication (operational events)
	Targets []Target
	// Urgent is stored below the disk's watermark, too: it is small, rare, and what
	// says that the disk is full.
	Urgent bool
}

// Leased: the rows of one subscriber that stand at or before a point of one
// place were loaded into memory and may be sent from now on. It is durable
// before the first of them is sent; one small row covers a whole window.
type Leased struct {
	Lease      Lease
	Subscriber SubscriberNum
	Place      Place
	Lane       Priority  // with PlaceReady
	Key        KeyHash   // with PlaceParked
	Due        time.Time // with PlaceRetry: rows at or before (Due, UpTo)
	UpTo       Seq
}

// Next is what becomes of a row.
type Next uint8

// What becomes of a row. The numbers are stored.
const (
	NextDelivered Next = 1 // row removed
	NextRetry     Next = 2 // row moves to PlaceRetry at Due
	NextDead      Next = 3 // row removed, dead letter written
	NextCanceled  Next = 4 // row removed
	NextParked    Next = 5 // row moves to PlaceParked behind its key
)

// Moved: a row left its place, after an attempt or by a decision. Outcome and
// next due time are one fact, so there are never two truths.
type Moved struct {
	Lease   Lease
	Row     Row
	At      time.Time
	Attempt *Attempt // nil = no attempt was made (expired, canceled, parked, released)
	// Prior is the attempt that was lost with a dead node, if the row was leased
	// then: it goes on the timeline before Attempt.
	Prior  *Attempt
	Next   Next
	Reason Reason
	Due    time.Time // with NextRetry
	Note   string
	// Block marks the row's key as blocked, with this row (its First) as head,
	// until Unblock: later rows of the key are parked, not sent.
	Block   bool
	Unblock bool
	// Copy is the event for the dead letter; storage fills it with NextDead. If
	// the event was deleted, storage makes it NextCanceled: there is nothing left
	// to replay.
	Copy *Event
	// Signature groups dead letters that died of the same thing; NextDead only.
	Signature string
	// Awaited: the next delivery waits until this is durable, so this does not wait
	// for company. It is not stored.
	Awaited bool
}

// Replayed: a dead or delivered delivery enters the queue again, at the tail.
type Replayed struct {
	Lease      Lease
	At         time.Time
	Event      EventKey
	Subscriber SubscriberNum
	Lane       Priority
	Key        KeyHash
	Attempts   int
	Copy       *Event      // restores the event when retention removed it
	Dead       *DeadLetter // what it was until now; nil = delivered
}

// DeadLetter names a dead letter and its place in the lists of them.
type DeadLetter struct {
	Tenant     TenantNum
	Subscriber SubscriberNum
	Event      EventKey
	At         time.Time // of death as the lists have it; millisecond precision
}

// Purged: a dead letter was removed for good.
type Purged struct {
	Lease      Lease
	At         time.Time
	Event      EventKey
	Subscriber SubscriberNum
	Dead       *DeadLetter // what is removed
}

// Expunged: an event was deleted: its payload goes, everywhere.
type Expunged struct {
	Lease   Lease
	At      time.Time
	Event   EventKey
	Reason  Reason // ReasonEventDeleted or ReasonTenantDeleted
	Targets []SubscriberNum
	Dead    []DeadLetter // those of the event
}

// Dropped: a subscriber was deleted and Rows are the next chunk of what was
// pending for it.
type Dropped struct {
	Lease      Lease
	At         time.Time
	Subscriber SubscriberNum
	Reason     Reason // ReasonSubscriberDeleted or ReasonTenantDeleted
	Rows       []Row
	Dead       []DeadLetter // the next of what it left dead
	Last       bool         // nothing of the subscriber is left after this
}

// HealthChanged: what an actor must remember about a subscriber over restarts.
type HealthChanged struct {
	Lease      Lease
	Subscriber SubscriberNum
	Health     Health
}

// Health is a subscriber's breaker and failure memory.
type Health struct {
	Breaker      BreakerState
	OpenUntil    time.Time // with BreakerOpen
	Opens        int       // consecutive openings: the exponent of the next wait
	Consecutive  int       // failures in a row
	FailingSince time.Time // first failure since the last success; zero = healthy
	LastSuccess  time.Time
}

// BreakerState is the state of a subscriber's circuit breaker.
type BreakerState uint8

// Breaker states. The numbers are stored.
const (
	BreakerClosed   BreakerState = 0
	BreakerOpen     BreakerState = 1
	BreakerHalfOpen BreakerState = 2
)

var breakerNames = [...]string{"closed", "open", "half_open"}

// String returns the wire name.
func (b BreakerState) String() string {
	if int(b) < len(breakerNames) {
		return breakerNames[b]
	}
	return "invalid"
}

func (*Published) fact()     {}
func (*Leased) fact()        {}
func (*Moved) fact()         {}
func (*Replayed) fact()      {}
func (*Purged) fact()        {}
func (*Expunged) fact()      {}
func (*Dropped) fact()       {}
func (*HealthChanged) fact() {}
