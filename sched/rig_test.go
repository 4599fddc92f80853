package sched

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// rig is a scheduler with everything it needs, all of it fake.
type rig struct {
	t    testing.TB
	q    *fakeQueue
	dir  *fakeDirectory
	send *fakeSender
	s    *Scheduler
	cfg  Config

	mu       sync.Mutex
	disabled []Disabled
	breakers []BreakerChanged
	decided  []Decided
	finished []AttemptFinished
	seq      uint64
	lines    int // lineLimit; 0 = the default
}

// newRig starts a scheduler. It is called inside a synctest bubble.
func newRig(t testing.TB, change func(*Config)) *rig { return newRigOf(t, &rig{}, change) }

func newRigOf(t testing.TB, r *rig, change func(*Config)) *rig {
	*r = rig{lines: r.lines, t: t, q: newFakeQueue(t), dir: newFakeDirectory()}
	r.send = &fakeSender{t: t, inFlight: map[lineRef]int{}, nth: map[ref]int{}, perSub: map[delivery.SubscriberNum]int{}}
	r.send.answer = func(call) delivery.Result { return status(200) }
	r.cfg.Rand = func() float64 { return 0.5 }
	r.cfg.DrainFor = -1
	if change != nil {
		change(&r.cfg)
	}
	r.start()
	t.Cleanup(func() { // inside the bubble
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		r.q.close()
	})
	return r
}

func (r *rig) start() {
	cfg := r.cfg
	cfg.Disable = func(sub delivery.SubscriberNum, reason delivery.Reason, at time.Time) {
		r.dir.change(sub, func(s *delivery.Subscriber) {
			s.Status, s.StatusReason = delivery.SubscriberDisabled, reason
		})
		r.s.Kick(sub)
	}
	cfg.Observer = Observer{
		AttemptFinished: func(e AttemptFinished) { r.mu.Lock(); r.finished = append(r.finished, e); r.mu.Unlock() },
		Moved:           func(e Decided) { r.mu.Lock(); r.decided = append(r.decided, e); r.mu.Unlock() },
		BreakerChanged:  func(e BreakerChanged) { r.mu.Lock(); r.breakers = append(r.breakers, e); r.mu.Unlock() },
		Disabled:        func(e Disabled) { r.mu.Lock(); r.disabled = append(r.disabled, e); r.mu.Unlock() },
		Stalled:         r.cfg.Observer.Stalled,
		ReadFailed:      r.cfg.Observer.ReadFailed,
		ClockStepped:    r.cfg.Observer.ClockStepped,
		Resumed:         r.cfg.Observer.Resumed,
	}
	s, err := New(r.q, r.dir, r.send, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.lines > 0 {
		s.lineLimit = r.lines
	}
	r.s = s
	r.send.setQueue(r.q)
	r.q.hooks.admit, r.q.hooks.committed, r.q.hooks.aborted = s.Admit, s.Committed, s.Aborted
	if err := s.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// stop stops the scheduler the way a shutdown does, and restart opens the same
// disk again.
func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.s.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
}

func (r *rig) restart() {
	r.stop()
	r.reopen()
}

// crash loses what was not durable, and starts again.
func (r *rig) crash() {
	old := r.s
	r.q.mu.Lock()
	r.q.dead = true
	r.q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	_ = old.Stop(ctx) // its goroutines end; its facts go nowhere
	cancel()
	synctest.Wait()
	r.reopen()
}

func (r *rig) reopen() {
	r.q = r.q.crash()
	r.start()
}

// sub adds a subscriber with the defaults of the product, changed by change.
func (r *rig) sub(num delivery.SubscriberNum, change func(*delivery.Subscriber)) *delivery.Subscriber {
	s := &delivery.Subscriber{
		Num: num, Tenant: 1, ID: fmt.Sprintf("s%d", num), Version: 1, URL: fmt.Sprintf("https://s%d.test/", num),
		Concurrency: delivery.DefaultConcurrency, Timeout: delivery.DefaultTimeout, DisableAfter: delivery.DefaultDisableAfter,
		Priority: delivery.PriorityNormal,
	}
	if change != nil {
		change(s)
	}
	r.dir.put(s)
	return s
}

// event makes an event with a key of the current time.
func (r *rig) event(id string, change func(*delivery.Event)) *delivery.Event {
	r.mu.Lock()
	r.seq++
	seq := r.seq
	r.mu.Unlock()
	e := &delivery.Event{ID: id, Tenant: 1, Topic: "a.b", Priority: delivery.PriorityNormal, Payload: []byte("{}")}
	ms := uint64(time.Now().UnixMilli())
	binary.BigEndian.PutUint64(e.Key[:8], ms<<16)
	binary.BigEndian.PutUint64(e.Key[8:], seq)
	if change != nil {
		change(e)
	}
	return e
}

// fact makes a publish of an event to subscribers.
func (r *rig) fact(e *delivery.Event, subs ...delivery.SubscriberNum) *delivery.Published {
	p := &delivery.Published{Event: e}
	for _, num := range subs {
		s, err := r.dir.Subscriber(num)
		if err != nil {
			r.t.Fatal(err)
		}
		p.Targets = append(p.Targets, delivery.Target{
			Subscriber: num, Lane: s.Lane(e), Key: s.KeyFor(e.OrderingKey), Due: e.DeliverAt,
		})
	}
	return p
}

// publish publishes an event with an ordering key to subscribers.
func (r *rig) publish(id, key string, subs ...delivery.SubscriberNum) *delivery.Event {
	e := r.event(id, func(e *delivery.Event) { e.OrderingKey = key })
	if err := r.q.publish(r.fact(e, subs...)); err != nil {
		r.t.Errorf("publish %s: %v", id, err)
	}
	return e
}

// ended returns how a delivery ended; 0 = it has not.
func (r *rig) ended(e *delivery.Event, sub delivery.SubscriberNum) delivery.Next {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	return r.q.state.ended[ref{e.Key, sub}]
}

func (r *rig) wantEnded(e *delivery.Event, sub delivery.SubscriberNum, want delivery.Next) {
	r.t.Helper()
	if got := r.ended(e, sub); got != want {
		r.t.Errorf("event %s for subscriber %d: ended as %d, want %d", e.ID, sub, got, want)
	}
}

// fakeDirectory holds records.
type fakeDirectory struct {
	mu      sync.Mutex
	subs    map[delivery.SubscriberNum]*delivery.Subscriber
	tenants map[delivery.TenantNum]*delivery.Tenant
	failing error
	gone    bool // all tenants were deleted
}

func newFakeDirectory() *fakeDirectory {
	return &fakeDirectory{
		subs:    map[delivery.SubscriberNum]*delivery.Subscriber{},
		tenants: map[delivery.TenantNum]*delivery.Tenant{},
	}
}

func (d *fakeDirectory) put(s *delivery.Subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subs[s.Num] = s
}

func (d *fakeDirectory) change(num delivery.SubscriberNum, change func(*delivery.Subscriber)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := *d.subs[num]
	s.Version++
	change(&s)
	d.subs[num] = &s
}

func (d *fakeDirectory) changeTenant(num delivery.TenantNum, change func(*delivery.Tenant)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := *d.tenants[num]
	t.Version++
	change(&t)
	d.tenants[num] = &t
}

func (d *fakeDirectory) Subscriber(num delivery.SubscriberNum) (*delivery.Subscriber, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failing != nil {
		return nil, d.failing
	}
	if s := d.subs[num]; s != nil {
		return s, nil
	}
	return nil, delivery.ErrNoSubscriber
}

func (d *fakeDirectory) Tenant(num delivery.TenantNum) (*delivery.Tenant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil, delivery.ErrNoTenant
	}
	if t := d.tenants[num]; t != nil {
		return t, nil
	}
	return &delivery.Tenant{Num: num, ID: fmt.Sprintf("t%d", num), Version: 1}, nil
}

// call is one attempt as the sender saw it.
type call struct {
	sub     delivery.SubscriberNum
	id      string // of the event
	key     string // ordering key
	event   delivery.EventKey
	attempt int
	nth     int // of this event and subscriber, over restarts
	at      time.Time
	ended   time.Time
	ctx     context.Context
}

type lineRef struct {
	sub delivery.SubscriberNum
	key delivery.KeyHash
}

// fakeSender answers by script and checks what must hold whenever an attempt is
// made: its row's lease is durable, its key is not in flight already, its
// subscriber's concurrency is kept.
type fakeSender struct {
	t      testing.TB
	answer func(call) delivery.Result // may sleep

	mu       sync.Mutex
	q        *fakeQueue
	calls    []call
	nth      map[ref]int
	inFlight map[lineRef]int
	perSub   map[delivery.SubscriberNum]int
	most     int // attempts in flight at once
	now      int
	once     sync.Once
	lax      bool // skip the checks of leases and order, which are slow
}

func (f *fakeSender) setQueue(q *fakeQueue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.q = q
}

func (f *fakeSender) Send(ctx context.Context, sub *delivery.Subscriber, event *delivery.Event, attempt int) delivery.Result {
	key := lineRef{sub.Num, sub.KeyFor(event.OrderingKey)}
	c := call{sub: sub.Num, id: event.ID, key: event.OrderingKey, event: event.Key, attempt: attempt, at: time.Now(), ctx: ctx}
	f.mu.Lock()
	f.nth[ref{c.event, c.sub}]++
	c.nth = f.nth[ref{c.event, c.sub}]
	index := len(f.calls)
	f.calls = append(f.calls, c)
	f.inFlight[key]++
	f.perSub[sub.Num]++
	f.now++
	f.most = max(f.most, f.now)
	if key.key != 0 && f.inFlight[key] > 1 {
		f.t.Errorf("subscriber %d: %d attempts in flight for key %q", sub.Num, f.inFlight[key], event.OrderingKey)
	}
	if most := max(1, sub.Concurrency); f.perSub[sub.Num] > most {
		f.t.Errorf("subscriber %d: %d attempts in flight, concurrency is %d", sub.Num, f.perSub[sub.Num], most)
	}
	q, lax := f.q, f.lax
	f.mu.Unlock()
	if !lax && !q.isDead() && !q.durablyLeased(event.Key, sub.Num) {
		f.t.Errorf("event %s for subscriber %d was sent before its lease was durable", event.ID, sub.Num)
	}
	if r, found := q.earlierOfKey(event.Key, sub.Num, lax); found && !q.isDead() {
		f.t.Errorf("subscriber %d: event %s was sent while %s of its key is not finished (place %d, first %d)",
			sub.Num, event.ID, q.idOf(r.Event), r.Place, r.First)
		f.once.Do(func() { f.t.Log(q.history(sub.Num, r.Key)) })
	}
	f.mu.Lock()
	answer := f.answer
	f.mu.Unlock()
	result := answer(c)
	f.mu.Lock()
	f.inFlight[key]--
	f.perSub[sub.Num]--
	f.now--
	f.calls[index].ended = time.Now()
	f.mu.Unlock()
	return result
}

// forget ends a call that will not return.
func (f *fakeSender) forget(c call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.perSub[c.sub]--
	f.now--
}

func (q *fakeQueue) isDead() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dead
}

func (q *fakeQueue) idOf(key delivery.EventKey) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.events[key].ID
}

// sent lists the calls so far.
func (f *fakeSender) sent() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

// sentTo counts the calls to a subscriber.
func (f *fakeSender) sentTo(sub delivery.SubscriberNum) int {
	n := 0
	for _, c := range f.sent() {
		if c.sub == sub {
			n++
		}
	}
	return n
}

func (f *fakeSender) setAnswer(answer func(call) delivery.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func status(code int) delivery.Result { return delivery.Result{Status: code} }

func retryAfter(code int, value string) delivery.Result {
	return delivery.Result{Status: code, RetryAfter: value}
}

func timeout() delivery.Result {
	return delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout}
}

// hang waits for d, or for the stop of the scheduler.
func hang(c call, d time.Duration, then delivery.Result) delivery.Result {
	select {
	case <-time.After(d):
		return then
	case <-c.ctx.Done():
		return delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseReset}
	}
}

// settle lets everything happen that happens without time passing for more
// than d.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
