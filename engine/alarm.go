package engine

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// What keeps alarms few.
const (
	// calm is how long something must be well again before that is told. What fails
	// again before has not recovered, and is not told of a second time.
	calm = 5 * time.Minute
	// deadQuiet without a dead letter ends an episode of growth.
	deadQuiet = time.Hour
	// deadGrowth is by how much an episode must have grown since it was told of.
	deadGrowth = 10
	// deadSpacing is the least time between two alarms of one episode.
	deadSpacing = time.Minute
)

// verdict is what an alarm asks for.
type verdict uint8

const (
	verdictWait   verdict = iota // nothing now
	verdictRaise                 // tell that it is so
	verdictClear                 // tell that it is over
	verdictForget                // nothing more will come of it
)

// alarm is one thing that an operator may have to hear of. Decisions are pure: what
// is to be done now, and otherwise when to ask again, zero for "on news".
type alarm interface {
	next(now time.Time) (v verdict, again time.Time)
	// told notes that a verdict was carried out.
	told(v verdict, now time.Time)
	// event is the event of a verdict, about a subscriber with this id.
	event(v verdict, id string) (topic string, data any)
	// topics are those that it may use.
	topics() []string
}

// condition is something that holds for a while: an open circuit, a full disk.
//
//	     raise                 calm passed: clear
//	up ────────► up, told ──► over, told ──────► forgotten
//	│                 ▲           │
//	│ over            └───────────┘ again
//	└────► forgotten
type condition struct {
	since  time.Time // of the episode
	raised bool
	up     bool
	over   time.Time // since when it does not hold
}

func (c *condition) hold(now time.Time) {
	if c.since.IsZero() {
		c.since = now
	}
	c.up = true
}

func (c *condition) end(now time.Time) {
	if c.up {
		c.up, c.over = false, now
	}
}

func (c *condition) next(now time.Time) (verdict, time.Time) {
	switch {
	case c.up && !c.raised:
		return verdictRaise, time.Time{}
	case c.up:
		return verdictWait, time.Time{}
	case !c.raised:
		return verdictForget, time.Time{}
	case now.Before(c.over.Add(calm)):
		return verdictWait, c.over.Add(calm)
	default:
		return verdictClear, time.Time{}
	}
}

func (c *condition) told(v verdict, now time.Time) {
	c.raised = v == verdictRaise
	if v == verdictClear && c.up { // again while that was told
		c.since = now
	}
}

// breakerAlarm: a subscriber's circuit is open.
type breakerAlarm struct {
	condition
	why     sched.BreakerWhy
	retryAt time.Time
}

func (*breakerAlarm) topics() []string { return []string{TopicBreakerOpened, TopicBreakerClosed} }

func (a *breakerAlarm) event(v verdict, id string) (topic string, data any) {
	if v == verdictClear {
		return TopicBreakerClosed, BreakerClosed{Subscriber: id, OpenedAt: stamp(a.since), At: stamp(a.over)}
	}
	return TopicBreakerOpened, BreakerOpened{Subscriber: id, Why: string(a.why), At: stamp(a.since), RetryAt: stamp(a.retryAt)}
}

// diskAlarm: the free space is below the watermark.
type diskAlarm struct {
	condition
	node        string
	free, total uint64
}

func (*diskAlarm) topics() []string { return []string{TopicDiskFull, TopicDiskRoom} }

func (a *diskAlarm) event(v verdict, _ string) (topic string, data any) {
	if v == verdictClear {
		return TopicDiskRoom, DiskRoom{
			Node: a.node, FreeBytes: a.free, TotalBytes: a.total, FullSince: stamp(a.since), At: stamp(a.over),
		}
	}
	return TopicDiskFull, DiskFull{Node: a.node, FreeBytes: a.free, TotalBytes: a.total, At: stamp(a.since)}
}

// deadAlarm: a subscriber's dead letters grow. An episode begins with the first
// after deadQuiet without any. It is told of at its first, and again each time that
// it is deadGrowth times what it was when it was last told of.
type deadAlarm struct {
	since  time.Time
	count  int64 // since then
	last   time.Time
	reason delivery.Reason
	// armed: a dead letter that is no alarm's came since it was last told. suspect is
	// one of which that is not known.
	armed   bool
	suspect delivery.EventKey
	telling int64 // count in the event that is being told
	atTold  int64 // count when it was told of; 0 = it was not
	toldAt  time.Time
}

// add counts one more: known to be no alarm's, or suspect, or neither when nothing is
// known of its event.
func (a *deadAlarm) add(now time.Time, reason delivery.Reason, known bool, suspect delivery.EventKey) {
	if a.count == 0 {
		a.since = now
	}
	a.count++
	a.last, a.reason = now, reason
	switch {
	case known:
		a.armed = true
	case !suspect.IsZero():
		a.suspect = suspect
	}
}

// grown reports whether there is enough to tell.
func (a *deadAlarm) grown() bool { return a.atTold == 0 || a.count >= deadGrowth*a.atTold }

func (a *deadAlarm) next(now time.Time) (verdict, time.Time) {
	if a.grown() && a.armed {
		if at := a.toldAt.Add(deadSpacing); !a.toldAt.IsZero() && now.Before(at) {
			return verdictWait, at
		}
		return verdictRaise, time.Time{}
	}
	if end := a.last.Add(deadQuiet); now.Before(end) {
		return verdictWait, end
	}
	return verdictForget, time.Time{}
}

func (a *deadAlarm) told(_ verdict, now time.Time) {
	a.atTold, a.toldAt = a.telling, now
	if a.count == a.telling { // else more came meanwhile
		a.armed, a.suspect = false, delivery.EventKey{}
	}
}

func (*deadAlarm) topics() []string { return []string{TopicDeadLetters} }

func (a *deadAlarm) event(_ verdict, id string) (topic string, data any) {
	a.telling = a.count
	return TopicDeadLetters, DeadLettersGrowing{
		Subscriber: id, Count: a.count, Since: stamp(a.since), Reason: a.reason.String(), At: stamp(a.last),
	}
}

// disabledAlarm: a subscriber was disabled. It is told of once.
type disabledAlarm struct {
	reason delivery.Reason
	at     time.Time
	done   bool
}

func (*disabledAlarm) topics() []string { return []string{TopicSubscriberDisabled} }

func (a *disabledAlarm) next(time.Time) (verdict, time.Time) {
	if a.done {
		return verdictForget, time.Time{}
	}
	return verdictRaise, time.Time{}
}

func (a *disabledAlarm) told(verdict, time.Time) { a.done = true }

func (a *disabledAlarm) event(_ verdict, id string) (topic string, data any) {
	return TopicSubscriberDisabled, SubscriberDisabled{Subscriber: id, Reason: a.reason.String(), At: stamp(a.at)}
}
