package engine

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// alarmKind is what an alarm is about. The names are stored.
type alarmKind string

const (
	alarmDisk     alarmKind = "disk"
	alarmDisabled alarmKind = "disabled"
	alarmBreaker  alarmKind = "breaker"
	alarmDead     alarmKind = "dead_letters"
)

// rank is the order in which alarms are told, when not all can be.
var rank = map[alarmKind]int{alarmDisk: 0, alarmDisabled: 1, alarmBreaker: 2, alarmDead: 3}

// alarmKey names an alarm: at most one of a kind about a subscriber, 0 = the node.
type alarmKey struct {
	kind alarmKind
	sub  delivery.SubscriberNum
}

// Bounds of what alarms cost.
const (
	maxAlarms       = 16_384 // held in memory
	maxTenantAlarms = 1024   // of one tenant
	maxDeaf         = 65_536 // remembered tenants that nobody listens in
	// alarmBurst events of a tenant may be told at once, then one every alarmEvery.
	alarmBurst = 60
	alarmEvery = time.Minute
	// alarmLook is the least time between two looks at all alarms.
	alarmLook = time.Second
	// alarmAgain is the first wait after the store refused an event; it doubles up to
	// alarmMost.
	alarmAgain = 5 * time.Second
	alarmMost  = time.Minute
)

// alarmPorts is what alarms need of the engine.
type alarmPorts struct {
	// heard reports whether any subscriber of a tenant takes a topic.
	heard func(tenant delivery.TenantNum, topic string) (bool, error)
	// publish makes an event durable.
	publish func(ctx context.Context, tenant delivery.TenantNum, topic string, data any) error
	// identify returns the id of a subscriber, [delivery.ErrNoSubscriber] once it is
	// deleted.
	identify func(delivery.SubscriberNum) (string, error)
	// open reports whether a subscriber's circuit is not closed.
	open func(delivery.SubscriberNum) (bool, error)
	// topic returns that of an event.
	topic func(context.Context, delivery.EventKey) (string, error)
	// operator returns the tenant that hears of the node, 0 = none.
	operator func() delivery.TenantNum
	// records keeps over restarts what was told.
	records  alarmRecords
	observed func(topic string, result OperationalResult)
	logger   *slog.Logger
	node     string
}

// alarms turns what parts report into operational events.
//
// Reports only note what is so; one goroutine tells of it. So a report never waits,
// what cannot be told now is told when it can be, and what is over by then is not
// told at all. What was told survives a restart, and is not told again.
//
// Invariants: one goroutine, from start to stop, asleep while there is nothing to
// tell. It alone tells and forgets. mu is never held while something is read or
// written.
type alarms struct {
	alarmPorts
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	held    map[alarmKey]*heldAlarm
	tenants map[delivery.TenantNum]*alarmTenant
	deaf    map[deafKey]struct{}

	wait    time.Duration // after the store refused; 0 = it did not
	blocked time.Time     // until when nothing is tried
}

// heldAlarm is an alarm and whose it is.
type heldAlarm struct {
	alarm
	tenant delivery.TenantNum
	// ended: it is forgotten without another word.
	ended bool
	kept  bool // there is a record of it
}

// alarmTenant is what a tenant has used of its bounds.
type alarmTenant struct {
	held   int
	tokens float64
	filled time.Time
}

// deafKey is a tenant in which nobody takes the topics of a kind.
type deafKey struct {
	tenant delivery.TenantNum
	kind   alarmKind
}

func newAlarms(ports alarmPorts) *alarms {
	return &alarms{
		alarmPorts: ports, wake: make(chan struct{}, 1), held: map[alarmKey]*heldAlarm{},
		tenants: map[delivery.TenantNum]*alarmTenant{}, deaf: map[deafKey]struct{}{},
	}
}

// start loads what was told before, and begins to tell.
func (a *alarms) start() {
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.load()
	a.done.Go(func() { a.run(ctx) })
}

// stop tells what can be told at once, and ends.
func (a *alarms) stop(ctx context.Context) error {
	a.cancel()
	a.done.Wait()
	a.look(ctx)
	return nil
}

func (a *alarms) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *alarms) run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-again.C:
		}
		at := a.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(alarmLook):
		}
		again.Stop()
		if !at.IsZero() {
			again.Reset(time.Until(at))
		}
	}
}

// The reports. Each is quick, and may come from any goroutine.

func (a *alarms) disabled(tenant delivery.TenantNum, sub delivery.SubscriberNum, reason delivery.Reason, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.held[alarmKey{alarmBreaker, sub}]; h != nil {
		h.ended = true // it says more, and the circuit starts afresh
	}
	h := a.hold(alarmKey{alarmDisabled, sub}, tenant, func() alarm { return &disabledAlarm{} })
	if h != nil {
		h.alarm = &disabledAlarm{reason: reason, at: at}
	}
	a.kick()
}

func (a *alarms) breakerChanged(e sched.BreakerChanged) {
	now := time.Now()
	key := alarmKey{alarmBreaker, e.Subscriber}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.To {
	case delivery.BreakerOpen:
		if isAlarm(e.Topic) && !a.raisedLocked(key) {
			return
		}
		if h := a.hold(key, e.Tenant, func() alarm { return &breakerAlarm{} }); h != nil {
			b, _ := h.alarm.(*breakerAlarm)
			b.hold(now)
			b.why, b.retryAt = cmp.Or(b.why, e.Why), e.OpenUntil // why the episode began
		}
	case delivery.BreakerClosed:
		if h := a.held[key]; h != nil {
			b, _ := h.alarm.(*breakerAlarm)
			b.end(now)
		}
	default:
		return
	}
	a.kick()
}

// raisedLocked reports whether the operator has heard of an open circuit, or is about
// to.
func (a *alarms) raisedLocked(key alarmKey) bool {
	h := a.held[key]
	if h == nil || h.ended {
		return false
	}
	b, _ := h.alarm.(*breakerAlarm)
	return b.raised || b.up
}

// died reports a dead letter. topic may be "" for "look at the event", and that zero
// if it cannot be read.
func (a *alarms) died(tenant delivery.TenantNum, sub delivery.SubscriberNum, reason delivery.Reason, topic string, event delivery.EventKey) {
	if isAlarm(topic) {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.hold(alarmKey{alarmDead, sub}, tenant, func() alarm { return &deadAlarm{} }); h != nil {
		d, _ := h.alarm.(*deadAlarm)
		d.add(now, reason, topic != "", event)
		a.kick()
	}
}

// disk reports the free space.
func (a *alarms) disk(free, total uint64, full bool) {
	now := time.Now()
	key := alarmKey{kind: alarmDisk}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.held[key]
	if h == nil {
		if !full {
			return
		}
		h = a.hold(key, 0, func() alarm { return &diskAlarm{node: a.node} })
	}
	d, _ := h.alarm.(*diskAlarm)
	d.free, d.total = free, total
	if d.up == full {
		return
	}
	if full {
		d.hold(now)
	} else {
		d.end(now)
	}
	a.kick()
}

// changed reports that something about a tenant's subscribers did: they may listen
// now.
func (a *alarms) changed(tenant delivery.TenantNum, sub delivery.SubscriberNum, deleted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind := range rank {
		delete(a.deaf, deafKey{tenant, kind})
	}
	if !deleted || sub == 0 {
		return
	}
	for kind := range rank {
		if h := a.held[alarmKey{kind, sub}]; h != nil && kind != alarmDisk {
			h.ended = true
			a.kick()
		}
	}
}

// hold returns the alarm of a key, made if it was not there; nil if nobody would hear
// it, or too many are held. The node's own is always there.
func (a *alarms) hold(key alarmKey, tenant delivery.TenantNum, made func() alarm) *heldAlarm {
	h := a.held[key]
	if h != nil && !h.ended {
		return h
	}
	if h != nil {
		h.alarm, h.ended = made(), false
		return h
	}
	if _, deaf := a.deaf[deafKey{tenant, key.kind}]; deaf {
		return nil
	}
	t := a.tenants[tenant]
	if t == nil {
		t = &alarmTenant{tokens: alarmBurst, filled: time.Now()}
		a.tenants[tenant] = t
	}
	fresh := &heldAlarm{alarm: made(), tenant: tenant}
	if key.kind != alarmDisk && (len(a.held) >= maxAlarms || t.held >= maxTenantAlarms) {
		a.observed(fresh.topics()[0], OperationalDropped)
		return nil
	}
	t.held++
	a.held[key] = fresh
	return fresh
}

// due is an alarm that has something to say.
type due struct {
	key  alarmKey
	held *heldAlarm
	verdict
}

// look tells what is to be told and returns when to look again, zero for "on news".
func (a *alarms) look(ctx context.Context) time.Time {
	a.mu.Lock()
	now := time.Now()
	list, again := a.dueLocked(now)
	a.mu.Unlock()
	if now.Before(a.blocked) && len(list) > 0 && ctx.Err() == nil {
		return earlier(again, a.blocked)
	}
	for _, d := range list {
		at, ok := a.tell(ctx, d)
		if again = earlier(again, at); !ok {
			return again
		}
	}
	return again
}

// dueLocked lists what has something to say, the most important first.
func (a *alarms) dueLocked(now time.Time) (list []due, again time.Time) {
	for key, h := range a.held {
		v, at := verdictForget, time.Time{}
		if !h.ended {
			v, at = h.next(now)
		}
		switch d, isDead := h.alarm.(*deadAlarm); {
		case v != verdictWait:
			list = append(list, due{key, h, v})
		case isDead && d.grown() && !d.armed && !d.suspect.IsZero():
			list = append(list, due{key, h, verdictWait}) // what died has to be looked at
		default:
			again = earlier(again, at)
		}
	}
	slices.SortFunc(list, func(x, y due) int {
		return cmp.Or(cmp.Compare(rank[x.key.kind], rank[y.key.kind]), cmp.Compare(x.key.sub, y.key.sub))
	})
	maps.DeleteFunc(a.tenants, func(_ delivery.TenantNum, t *alarmTenant) bool {
		t.fill(now)
		return t.held == 0 && t.tokens >= alarmBurst
	})
	return list, again
}

func (t *alarmTenant) fill(now time.Time) {
	t.tokens = min(alarmBurst, t.tokens+float64(now.Sub(t.filled))/float64(alarmEvery))
	t.filled = now
}
