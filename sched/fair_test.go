package sched

import (
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestPickLane(t *testing.T) {
	lane := func(p delivery.Priority, waits time.Duration) laneView {
		return laneView{waiting: true, priority: p, since: instant(time.Hour - waits)}
	}
	var none laneView
	tests := []struct {
		name   string
		lanes  [3]laneView
		streak int
		want   int
		why    pickWhy
	}{
		{"nothing waits", [3]laneView{}, 0, 0, pickNothing},
		{"the highest first", [3]laneView{lane(0, 0), lane(1, time.Minute), lane(2, time.Minute)}, 0, 0, pickPriority},
		{"one of eight is for an aged lane", [3]laneView{lane(0, 0), lane(1, 0), lane(2, time.Minute)}, 7, 2, pickAged},
		{"of two the one that waits longer", [3]laneView{lane(0, 0), lane(1, time.Hour), lane(2, time.Minute)}, 7, 1, pickAged},
		{"young lanes are not aged", [3]laneView{lane(0, 0), lane(1, time.Second), none}, 100, 0, pickPriority},
		{"the lane alone", [3]laneView{none, none, lane(2, 0)}, 0, 2, pickPriority},
		{"equal priorities: the older", [3]laneView{lane(0, time.Second), lane(0, time.Minute), none}, 0, 1, pickPriority},
	}
	for _, tt := range tests {
		got, why := pickLane(tt.lanes, tt.streak, 8, 2*time.Second, instant(time.Hour))
		if got != tt.want || why != tt.why {
			t.Errorf("%s: lane %d (%d), want %d (%d)", tt.name, got, why, tt.want, tt.why)
		}
	}
}

// desk is a dispatcher alone: actors are queued again as soon as they are
// picked, so they always compete.
type desk struct {
	*dispatcher
	now instant
}

func newDesk(change func(*Config)) *desk {
	cfg := Config{}
	change(&cfg)
	d := &desk{dispatcher: newDispatcher(cfg.withDefaults()), now: instant(time.Hour)}
	d.gate = func() bool { return true }
	d.wakeSlow = func(instant) {}
	d.wakeTenant = func(delivery.TenantNum, instant) {}
	return d
}

func (d *desk) actor(num delivery.SubscriberNum, t *tenant) *actor {
	a := &actor{num: num, tenant: t}
	t.actors++
	return a
}

func (d *desk) queue(a *actor, lane delivery.Priority) {
	d.enqueue(a, lane, d.now)
}

// serve picks n times with one slot, and counts by actor.
func (d *desk) serve(n int) map[*actor]int {
	got := map[*actor]int{}
	for range n {
		a, sl := d.next(d.now)
		if a == nil {
			break
		}
		got[a]++
		lane := a.node.lane
		d.release(sl)
		d.queue(a, lane)
		d.now = d.now.add(time.Millisecond)
	}
	return got
}

func TestTenantsAreServedByWeight(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 1 })
	big := d.addTenant(&delivery.Tenant{Num: 1, Weight: 3}, 0)
	big.actors++ // known before its actors
	small := newTenant(&delivery.Tenant{Num: 2})
	d.tenants[2] = small
	var bigs []*actor
	for i := range 50 {
		a := d.actor(delivery.SubscriberNum(i), big) //nolint:gosec // small
		bigs = append(bigs, a)
		d.queue(a, delivery.PriorityNormal)
	}
	one := d.actor(100, small)
	d.queue(one, delivery.PriorityNormal)
	got := d.serve(4000)
	if got[one] != 1000 {
		t.Errorf("the small tenant's one subscriber got %d of 4000, want exactly its quarter", got[one])
	}
	for _, a := range bigs {
		if got[a] != 60 {
			t.Errorf("subscriber %d of the big tenant got %d, want 60", a.num, got[a])
		}
	}
}

func TestLowPriorityIsNeverStarved(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 1 })
	tn := newTenant(&delivery.Tenant{Num: 1})
	d.tenants[1] = tn
	high, normal, low := d.actor(1, tn), d.actor(2, tn), d.actor(3, tn)
	d.queue(high, delivery.PriorityHigh)
	d.queue(normal, delivery.PriorityNormal)
	d.queue(low, delivery.PriorityLow)
	got := d.serve(100_000)
	if got[low] < 15 || got[normal] < 15 {
		t.Errorf("in 100 s low got %d and normal %d of 100000", got[low], got[normal])
	}
	if got[high] < 87_000 {
		t.Errorf("high got %d of 100000, less than its seven eighths", got[high])
	}
}

func TestMaxShareBoundsATenantAndCostsOthersNothing(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 10 })
	greedy := newTenant(&delivery.Tenant{Num: 1, MaxShare: 3})
	other := newTenant(&delivery.Tenant{Num: 2})
	d.tenants[1], d.tenants[2] = greedy, other
	for i := range 20 {
		d.queue(d.actor(delivery.SubscriberNum(i), greedy), delivery.PriorityHigh)      //nolint:gosec // small
		d.queue(d.actor(delivery.SubscriberNum(100+i), other), delivery.PriorityNormal) //nolint:gosec // small
	}
	byTenant := map[*tenant]int{}
	var held []*slot
	for {
		a, sl := d.next(d.now)
		if a == nil {
			break
		}
		byTenant[a.tenant]++
		held = append(held, sl)
	}
	if byTenant[greedy] != 3 || byTenant[other] != 7 {
		t.Errorf("in flight: %d of 3 and %d of 7", byTenant[greedy], byTenant[other])
	}
	if d.contenders[classFast].Load() != 13 {
		t.Errorf("%d actors contend, want those of the other tenant alone", d.contenders[classFast].Load())
	}
	for _, sl := range held {
		d.release(sl)
	}
	if a, sl := d.next(d.now); a == nil || a.tenant != greedy {
		t.Error("the tenant is not served again below its share")
	} else {
		d.release(sl)
	}
}

func TestReservedPlacesAreKeptFree(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 10 })
	vip := d.addTenant(&delivery.Tenant{Num: 1, Reserved: 4}, 0)
	other := newTenant(&delivery.Tenant{Num: 2})
	d.tenants[2] = other
	for i := range 20 {
		d.queue(d.actor(delivery.SubscriberNum(i), other), delivery.PriorityHigh) //nolint:gosec // small
	}
	n := 0
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		n++
	}
	if n != 6 {
		t.Errorf("others took %d of 10 places, 4 are reserved", n)
	}
	for i := range 6 {
		d.queue(d.actor(delivery.SubscriberNum(50+i), vip), delivery.PriorityLow) //nolint:gosec // small
	}
	vips := 0
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		if a.tenant != vip {
			t.Error("a reserved place went to somebody else")
		}
		vips++
	}
	if vips != 4 {
		t.Errorf("the reservation gave %d places at once, want 4", vips)
	}
}

func TestReservationsLeaveAQuarterToAll(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 8 })
	d.addTenant(&delivery.Tenant{Num: 1, Reserved: 1000}, 0)
	other := newTenant(&delivery.Tenant{Num: 2})
	d.tenants[2] = other
	for i := range 20 {
		d.queue(d.actor(delivery.SubscriberNum(i), other), delivery.PriorityHigh) //nolint:gosec // small
	}
	n := 0
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		n++
	}
	if n != 2 {
		t.Errorf("others have %d of 8 places, want 2", n)
	}
}

func TestSlowReceiversLeaveHalfToTheRest(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 10 })
	tn := newTenant(&delivery.Tenant{Num: 1})
	d.tenants[1] = tn
	for i := range 20 {
		a := d.actor(delivery.SubscriberNum(i), tn) //nolint:gosec // small
		if i < 10 {
			a.standing.Store(int32(classSlow))
		}
		d.queue(a, delivery.PriorityNormal)
	}
	var slow, fast []*slot
	for a, sl := d.next(d.now); a != nil; a, sl = d.next(d.now) {
		if a.class() == classSlow {
			slow = append(slow, sl)
		} else {
			fast = append(fast, sl)
		}
	}
	if len(fast) != 5 || len(slow) != 5 {
		t.Errorf("fast %d, slow %d: half each", len(fast), len(slow))
	}
	for _, sl := range fast {
		d.release(sl)
	}
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		if a.class() == classSlow {
			t.Error("slow attempts go beyond their budget")
		}
	}
}

func TestAnAttemptThatTurnsSlowFreesItsPlace(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 4 })
	tn := newTenant(&delivery.Tenant{Num: 1})
	d.tenants[1] = tn
	for i := range 20 {
		d.queue(d.actor(delivery.SubscriberNum(i), tn), delivery.PriorityNormal) //nolint:gosec // small
	}
	take := func() int {
		n := 0
		for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
			n++
		}
		return n
	}
	if n := take(); n != 4 {
		t.Fatalf("%d started, want 4", n)
	}
	d.now = d.now.add(2*time.Second - 1)
	d.findSlow(d.now)
	if n := take(); n != 0 {
		t.Errorf("%d started before the others were slow", n)
	}
	d.now = d.now.add(1)
	d.findSlow(d.now)
	// Four are slow now, two of them within the slow budget: two places are free.
	if n := take(); n != 2 {
		t.Errorf("%d started, want 2", n)
	}
}

func TestReceiversThatNothingIsKnownAboutTakeAQuarterAtMost(t *testing.T) {
	d := newDesk(func(c *Config) { c.MaxInFlight = 16 })
	tn := newTenant(&delivery.Tenant{Num: 1})
	d.tenants[1] = tn
	for i := range 20 {
		a := d.actor(delivery.SubscriberNum(i), tn) //nolint:gosec // small
		a.standing.Store(int32(classNew))
		d.queue(a, delivery.PriorityNormal)
	}
	n := 0
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		n++
	}
	if n != 4 {
		t.Errorf("%d of 16 places, want 4", n)
	}
	d.now = d.now.add(2 * time.Second)
	d.findSlow(d.now)
	for a, _ := d.next(d.now); a != nil; a, _ = d.next(d.now) {
		n++
	}
	if n != 8 {
		t.Errorf("%d attempts, want 4 more once the first are known to be slow", n)
	}
}
