package sched

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

var (
	propertySeed = flag.Uint64("sched.seed", 0, "seed of the first property run; 0 = random")
	propertyRuns = flag.Int("sched.runs", 20, "property runs")
)

// TestOrderPerKeyHoldsWhateverHappens runs random topologies through failures,
// restarts, crashes, stalls, pauses, replays and reservations that come and go. The
// sender and the queue check order, leases and concurrency on every attempt, and
// what is reserved is counted after every step; in the end everything must have
// ended, and nothing may be left behind.
func TestOrderPerKeyHoldsWhateverHappens(t *testing.T) {
	first := *propertySeed
	if first == 0 {
		first = rand.Uint64()
	}
	runs := *propertyRuns
	if raceEnabled {
		runs = (runs + 1) / 2
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runProperty(t, seed) })
			if t.Failed() {
				t.Logf("repeat with: go test -run TestOrderPerKeyHoldsWhateverHappens -sched.runs 1 -sched.seed %d", seed)
			}
		})
	}
}

// propertyTenants is how many tenants the subscribers of a run are spread over.
const propertyTenants = 3

type propertyRun struct {
	*rig
	rnd    *rand.Rand
	dice   *rand.Rand // of the sender; guarded by mu
	subs   int
	keys   int
	calm   bool // no more failures
	failed bool // the queue is not ready
	events []*delivery.Published
}

func runProperty(t *testing.T, seed uint64) {
	p := &propertyRun{rnd: seeded(seed), dice: seeded(seed + 1)}
	p.subs, p.keys = 1+p.rnd.IntN(4), 2+p.rnd.IntN(12)
	p.rig = newRigOf(t, &rig{lines: 1 + p.rnd.IntN(4)}, func(c *Config) {
		c.Rand = func() float64 { return 0.5 }
		c.WindowRows = 2 + p.rnd.IntN(12)
		c.MaxInFlight = 1 + p.rnd.IntN(20)
		c.MaxUncommitted = 1 + p.rnd.IntN(30)
		c.StartAllowance = 1 + p.rnd.IntN(3)
		c.PayloadBytes = int64(p.rnd.IntN(2) * 4096)
		c.Breaker = BreakerPolicy{OpenFor: 200 * time.Millisecond, OpenMax: time.Second}
		c.RereadAfter = 50 * time.Millisecond
	})
	for num := range delivery.TenantNum(propertyTenants) {
		p.dir.tenants[num+1] = &delivery.Tenant{Num: num + 1, Version: 1, Reserved: p.rnd.IntN(2) * p.rnd.IntN(5)}
	}
	p.q.delay = time.Duration(p.rnd.IntN(8)) * time.Millisecond
	p.q.sync = time.Duration(p.rnd.IntN(8)) * time.Millisecond
	for num := range p.subs {
		p.sub(delivery.SubscriberNum(num+1), p.shape)
	}
	p.send.setAnswer(p.answerRandomly)
	for range 60 {
		p.step()
		time.Sleep(time.Duration(p.rnd.IntN(150)) * time.Millisecond)
		synctest.Wait()
		p.checkReservations()
	}
	p.finish()
}

// shape gives a subscriber a random policy.
func (p *propertyRun) shape(s *delivery.Subscriber) {
	s.Ordering = []delivery.Ordering{delivery.OrderingKeyed, delivery.OrderingKeyed, delivery.OrderingStrict, delivery.OrderingNone}[p.rnd.IntN(4)]
	s.Concurrency = 1 + p.rnd.IntN(6)
	s.Retry = delivery.Retry{Schedule: []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second}}
	if p.rnd.IntN(3) == 0 {
		s.Retry = delivery.Retry{Base: 50 * time.Millisecond, Attempts: 2 + p.rnd.IntN(5)}
	}
	s.GiveUpAfter = p.rnd.IntN(3)
	s.Priority = delivery.Priority(p.rnd.IntN(3))
	s.Tenant = delivery.TenantNum(1 + p.rnd.IntN(propertyTenants)) //nolint:gosec // small
	s.Reserved = p.rnd.IntN(2) * p.rnd.IntN(s.Concurrency+1)
}

// reserve changes what a subscriber reserves, and what a tenant does.
func (p *propertyRun) reserve(num delivery.SubscriberNum) {
	p.dir.change(num, func(s *delivery.Subscriber) { s.Reserved = p.rnd.IntN(2) * p.rnd.IntN(s.Concurrency+1) })
	p.s.Kick(num)
	tenant := delivery.TenantNum(1 + p.rnd.IntN(propertyTenants)) //nolint:gosec // small
	p.dir.changeTenant(tenant, func(t *delivery.Tenant) { t.Reserved = p.rnd.IntN(2) * p.rnd.IntN(5) })
	if err := p.s.KickTenant(tenant); err != nil {
		p.t.Error(err)
	}
}

// checkReservations holds what is reserved against what is in flight, while nothing
// moves: no more is set aside than may be, each subscriber has as many slots of its
// own in flight as it reserves, and none that could take one of them waits.
func (p *propertyRun) checkReservations() {
	d := p.s.dispatch
	open := d.gate()
	now := p.s.time.mono()
	d.mu.Lock()
	defer d.mu.Unlock()
	own, unused, free := 0, 0, map[*tenant]int{}
	for num, sh := range d.shares {
		own += sh.size
		free[sh.tenant] += sh.size - sh.own
		if sh.own != min(sh.size, len(sh.slots)) {
			p.t.Errorf("subscriber %d has %d slots of its own, of %d, with %d in flight", num, sh.own, sh.size, len(sh.slots))
		}
		if a := sh.queued; open && a != nil && a.node.line != nil && sh.own < sh.size && d.roomOfLocked(sh.tenant, classOwn, now).free() {
			p.t.Errorf("subscriber %d waits, although %d of the %d slots that it reserves are free", num, sh.size-sh.own, sh.size)
		}
	}
	for _, t := range d.tenants {
		if !d.scaled && t.kept != t.record.Load().Reserved {
			p.t.Errorf("tenant %d: %d slots are kept of %d", t.num, t.kept, t.record.Load().Reserved)
		}
		unused += max(0, t.kept-t.inFlight-free[t])
	}
	if own != d.bound[classOwn] || unused != d.unused || own+unused > Reservable(d.most) {
		p.t.Errorf("%d slots are own and %d kept for tenants, of %d; counted %d and %d", own, unused, d.most, d.bound[classOwn], d.unused)
	}
	total := 0
	for c := range classes {
		total += d.inFlight[c]
	}
	if total > d.most {
		p.t.Errorf("%d attempts are in flight, of %d", total, d.most)
	}
}

func (p *propertyRun) step() {
	num := delivery.SubscriberNum(1 + p.rnd.IntN(p.subs))
	dice := p.rnd.IntN(22)
	if p.failed && p.rnd.IntN(3) == 0 {
		dice = 2 // it does not last
	}
	switch dice {
	case 0:
		p.crash()
		p.failed = false
	case 1:
		p.restart()
		p.failed = false
	case 2:
		p.stall()
	case 3:
		p.setStatus(num, delivery.SubscriberPaused)
	case 4, 5:
		p.setStatus(num, delivery.SubscriberActive)
	case 6, 7:
		p.replay()
	case 8:
		p.s.Kick(num)
	case 9, 10:
		p.reserve(num)
	default:
		p.publishRandomly()
	}
}

func (p *propertyRun) publishRandomly() {
	var batch []*delivery.Published
	for range 1 + p.rnd.IntN(25) {
		e := p.event(fmt.Sprint("e", len(p.events)+len(batch)), func(e *delivery.Event) {
			if k := p.rnd.IntN(p.keys); k > 0 {
				e.OrderingKey = fmt.Sprint("k", k)
			}
			if p.rnd.IntN(10) == 0 {
				e.DeliverAt = time.Now().Add(time.Duration(p.rnd.IntN(400)) * time.Millisecond).Truncate(time.Millisecond)
			}
			if p.rnd.IntN(4) == 0 {
				e.Priority, e.PrioritySet = delivery.Priority(p.rnd.IntN(3)), true
			}
		})
		var to []delivery.SubscriberNum
		for num := range p.subs {
			if p.rnd.IntN(2) == 0 {
				to = append(to, delivery.SubscriberNum(num+1))
			}
		}
		batch = append(batch, p.fact(e, to...))
	}
	if err := p.q.publish(batch...); err == nil {
		p.events = append(p.events, batch...)
	} else if !p.failed {
		p.t.Errorf("publish: %v", err)
	}
}

func (p *propertyRun) answerRandomly(c call) delivery.Result {
	p.mu.Lock()
	calm, dice, wait := p.calm, p.dice.IntN(20), time.Duration(p.dice.IntN(40))*time.Millisecond
	p.mu.Unlock()
	if calm {
		return status(200)
	}
	var then delivery.Result
	switch {
	case dice < 10:
		then = status(200)
	case dice < 14:
		then = status(500)
	case dice < 16:
		then = timeout()
	case dice < 17:
		then = status(400)
	case dice < 18:
		then = status(429)
	default:
		wait *= 20
		then = status(503)
	}
	return hang(c, wait, then)
}

// stall lets commits and reads fail, or ends that. In between anything may
// happen: more work, a stop, a crash.
func (p *propertyRun) stall() {
	if p.failed {
		p.q.reopen()
		p.s.Resume()
	} else {
		p.q.setFailing(fmt.Errorf("disk: %w", delivery.ErrNotReady))
	}
	p.failed = !p.failed
}

func (p *propertyRun) setStatus(num delivery.SubscriberNum, status delivery.SubscriberStatus) {
	p.dir.change(num, func(s *delivery.Subscriber) { s.Status = status })
	p.s.Kick(num)
}

// replay puts a finished delivery back.
func (p *propertyRun) replay() {
	if len(p.events) == 0 || p.failed {
		return
	}
	f := p.events[p.rnd.IntN(len(p.events))]
	for _, target := range f.Targets {
		id := ref{f.Event.Key, target.Subscriber}
		p.q.mu.Lock()
		_, over := p.q.state.ended[id]
		fact := &delivery.Replayed{
			Lease: p.q.lease, At: time.Now(), Event: id.event, Subscriber: id.sub, Lane: target.Lane, Key: target.Key,
			Attempts: p.q.state.attempts[id],
		}
		p.q.mu.Unlock()
		if !over {
			continue
		}
		done := make(chan error, 1)
		p.q.Commit([]delivery.Fact{fact}, func(err error) { done <- err })
		if err := <-done; err != nil && !errors.Is(err, delivery.ErrNotReady) {
			p.t.Errorf("replay: %v", err)
		}
		p.s.Kick(id.sub)
		return
	}
}

// describe shows an actor that should not be there any more.
func (a *actor) describe() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "actor %d: open %v wanted %v asleep %v reset %v loading %v queued %v reread %v breaker %v"+
		" flight %d settling %d leasing %d ready %d outstanding %d promised %d lost %d allowance %d wanting %v next job %d\n  lanes %+v\n  retry %+v",
		a.num, a.open, a.wanted, a.asleep, a.reset, a.loading, a.queued, a.reread, a.Breaker, a.flight.n,
		a.settling.n, a.leasing.n, a.readyRowsLocked(), a.outstanding, a.promised, len(a.lost), a.allowance, a.wanting,
		a.nextJobLocked(a.s.time.mono()), a.lanes, a.retry)
	for _, ln := range a.lines {
		fmt.Fprintf(&out, "\n  line %+v", *ln)
	}
	return out.String()
}

// finish lets everything succeed, and looks at what is left.
func (p *propertyRun) finish() {
	p.mu.Lock()
	p.calm = true
	p.mu.Unlock()
	if p.failed {
		p.stall()
	}
	for num := range p.subs {
		p.setStatus(delivery.SubscriberNum(num+1), delivery.SubscriberActive)
	}
	settle(10 * time.Minute)
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	st := p.q.state
	open := 0
	for _, f := range p.events {
		for _, target := range f.Targets {
			if _, over := st.ended[ref{f.Event.Key, target.Subscriber}]; !over {
				open++
			}
		}
	}
	if open > 0 {
		p.t.Errorf("%d deliveries never ended", open)
	}
	for sp, rows := range st.rows {
		if len(rows) > 0 {
			p.t.Errorf("%d rows are left at place %d of subscriber %d: %+v", len(rows), sp.place, sp.sub, rows[0])
		}
	}
	for sub, keys := range st.blocked {
		if len(keys) > 0 {
			p.t.Errorf("%d keys of subscriber %d are still blocked", len(keys), sub)
		}
	}
	for _, a := range p.s.actors.all() {
		p.t.Log(a.describe())
	}
	if got := p.s.Stats(); got.Actors != 0 || got.InFlight != 0 || got.Rows != 0 || got.Uncommitted != 0 || got.PayloadBytes != 0 {
		p.t.Errorf("something stayed in memory: %+v", got)
	}
}
