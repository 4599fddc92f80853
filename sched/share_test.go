package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestRoomIsNamed(t *testing.T) {
	// A node of 8 slots with one in use, of a tenant without bounds.
	view := func(change func(*roomView)) roomView {
		v := roomView{class: classFast, inFlight: 1, bound: 8, charged: 1, most: 8, tenantInFlight: 1}
		change(&v)
		return v
	}
	tests := []struct {
		name string
		view roomView
		want roomWhy
	}{
		{"there is room", view(func(*roomView) {}), roomShared},
		{"the node is full", view(func(v *roomView) { v.charged = 8 }), fullNode},
		{"its tenant is full", view(func(v *roomView) { v.tenantMost = 1 }), fullTenant},
		{"its tenant has no token", view(func(v *roomView) { v.tenantWaits = true }), fullTenant},
		{"nor has it for a slot of its own", view(func(v *roomView) { v.class, v.tenantWaits = classOwn, true }), fullTenant},
		{"the slow budget is used up", view(func(v *roomView) { v.class, v.inFlight, v.bound = classSlow, 4, 4 }), fullSlow},
		{"the budget of the unknown is used up", view(func(v *roomView) { v.class, v.inFlight, v.bound = classNew, 2, 2 }), fullNew},
		{"the rest of the node is reserved for others", view(func(v *roomView) { v.charged, v.kept = 5, 3 }), reservedOnNode},
		{"it is reserved for its tenant", view(func(v *roomView) { v.charged, v.kept, v.tenantUnused = 5, 3, 1 }), roomTenant},
		{"the rest of its tenant's is reserved for another", view(func(v *roomView) { v.tenantMost, v.tenantInFlight, v.tenantKept = 4, 2, 2 }), reservedInTenant},
		{"its own slots are free, the shared ones not", view(func(v *roomView) {
			v.class, v.inFlight, v.bound, v.charged, v.kept, v.tenantMost, v.tenantInFlight, v.tenantKept = classOwn, 0, 2, 6, 2, 4, 2, 2
		}), roomOwn},
		{"but its tenant's bound holds for them, too", view(func(v *roomView) {
			v.class, v.inFlight, v.bound, v.tenantMost, v.tenantInFlight = classOwn, 0, 2, 4, 4
		}), fullTenant},
	}
	for _, tt := range tests {
		if got := tt.view.decide(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for why, want := range map[roomWhy]delivery.Reason{
		fullTenant: delivery.ReasonTenantLimited, reservedInTenant: delivery.ReasonReserved, reservedOnNode: delivery.ReasonReserved,
		fullSlow: delivery.ReasonSlowBudget, fullNew: delivery.ReasonNodeLimited, fullNode: delivery.ReasonNodeLimited,
	} {
		if got := why.reason(); got != want || why.free() {
			t.Errorf("%d is told as %s, want %s", why, got, want)
		}
	}
}

func TestReservationsAreAllottedInProportionWhenThereIsTooLittle(t *testing.T) {
	for _, tt := range []struct{ n, want int }{{1, 0}, {2, 1}, {4, 3}, {8, 6}, {4096, 3072}} {
		if got := Reservable(tt.n); got != tt.want {
			t.Errorf("of %d slots %d may be reserved, want %d", tt.n, got, tt.want)
		}
	}
	for _, tt := range []struct{ asked, promised, reservable, want int }{
		{5, 5, 6, 5}, {6, 6, 6, 6}, {6, 12, 6, 3}, {1, 12, 6, 0}, {1 << 20, 1 << 21, 3072, 1536},
	} {
		if got := allotted(tt.asked, tt.promised, tt.reservable); got != tt.want {
			t.Errorf("%d of %d promised get %d of %d, want %d", tt.asked, tt.promised, got, tt.reservable, tt.want)
		}
	}
	if got := ownBudget(2048, 4096, 1024); got != 1536 {
		t.Errorf("the slow budget beside 1024 own slots is %d, want 1536", got)
	}
}

// checkSums counts everything that the dispatcher keeps as a sum.
func (d *desk) checkSums(t *testing.T, slots map[*slot]bool, actors []*actor) {
	t.Helper()
	var inFlight [classes]int
	for s := range slots {
		if s.isOwn() {
			inFlight[classOwn]++
		} else {
			inFlight[s.class]++
		}
	}
	if inFlight != d.inFlight {
		t.Fatalf("in flight %v are counted, %v are there", d.inFlight, inFlight)
	}
	own, unused, promised := 0, 0, 0
	free, asked := map[*tenant]int{}, map[*tenant]int{}
	for num, sh := range d.shares {
		own += sh.size
		free[sh.tenant] += sh.size - sh.own
		asked[sh.tenant] += sh.asked
		if sh.own != min(sh.size, len(sh.slots)) {
			t.Fatalf("subscriber %d has %d slots of its own, of %d, with %d in flight", num, sh.own, sh.size, len(sh.slots))
		}
		for i, s := range sh.slots {
			if s.place != i || s.share != sh || !slots[s] {
				t.Fatalf("slot %d of subscriber %d is at %d", i, num, s.place)
			}
		}
	}
	for _, tn := range d.tenants {
		unused += tn.unused()
		promised += tn.promised()
		if tn.sharesFree != free[tn] || tn.sharesAsked != asked[tn] {
			t.Fatalf("tenant %d: %d free of %d asked, want %d of %d", tn.num, tn.sharesFree, tn.sharesAsked, free[tn], asked[tn])
		}
	}
	if own != d.bound[classOwn] || unused != d.unused || promised != d.promised || d.sharing.Load() != int64(len(d.shares)) {
		t.Fatalf("own %d, unused %d, promised %d, want %d, %d, %d", d.bound[classOwn], d.unused, d.promised, own, unused, promised)
	}
	if kept := own + unused; kept > Reservable(d.most) {
		t.Fatalf("%d of %d slots are reserved", kept, d.most)
	}
	var contenders [classes]int64
	for _, a := range actors {
		if a.node.line != nil && a.tenant.link(a.node.class).Load() {
			contenders[a.node.class]++
		}
	}
	for c := range classes {
		if got := d.contenders[c].Load(); got != contenders[c] {
			t.Fatalf("class %d: %d contend, %d are counted", c, contenders[c], got)
		}
	}
}

// TestSharesKeepTheirSums: whatever starts, ends, turns slow, reserves more, less
// or nothing, every count is what counting gives, nobody exceeds its bounds, and
// nobody who may start is left waiting.
func TestSharesKeepTheirSums(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(func(c *Config) { c.MaxInFlight = 2 + rng.IntN(14) })
		var actors []*actor
		for i := range 9 {
			num := delivery.TenantNum(1 + i%3) //nolint:gosec // small
			tn := d.addTenant(&delivery.Tenant{Num: num, MaxShare: rng.IntN(3) * rng.IntN(9), Reserved: rng.IntN(2) * rng.IntN(4)}, 1)
			a := &actor{num: delivery.SubscriberNum(1 + i), tenant: tn} //nolint:gosec // small
			a.standing.Store(int32(rng.IntN(3)))                        //nolint:gosec // small
			actors = append(actors, a)
		}
		slots := map[*slot]bool{}
		var held []*slot
		for range 400 {
			a := actors[rng.IntN(len(actors))]
			switch rng.IntN(8) {
			case 0:
				d.setShare(a, rng.IntN(6)*rng.IntN(2))
			case 1:
				d.dropShare(a.num)
			case 2:
				a.standing.Store(int32(rng.IntN(3))) //nolint:gosec // small
				d.reclass(a)
			case 3:
				d.now = d.now.add(time.Second)
				d.findSlow(d.now)
			case 4:
				d.addTenant(&delivery.Tenant{Num: a.tenant.num, Reserved: rng.IntN(9) * rng.IntN(2), MaxShare: rng.IntN(12)}, 0)
			case 5, 6:
				if a.node.line == nil {
					d.enqueue(a, delivery.Priority(rng.IntN(3)), d.now) //nolint:gosec // small
				}
				for picked, sl := d.next(d.now); picked != nil; picked, sl = d.next(d.now) {
					slots[sl], held = true, append(held, sl)
				}
				d.checkNobodyWaitsInVain(t, actors)
			default:
				if len(held) > 0 {
					i := rng.IntN(len(held))
					delete(slots, held[i])
					d.release(held[i])
					held = slices.Delete(held, i, i+1)
				}
			}
			d.checkSums(t, slots, actors)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func (d *desk) checkNobodyWaitsInVain(t *testing.T, actors []*actor) {
	t.Helper()
	for _, a := range actors {
		if a.node.line == nil || a.node.class != d.classOfLocked(a) {
			continue
		}
		if why := d.roomOfLocked(a.tenant, d.classOfLocked(a), d.now); why.free() {
			t.Fatalf("subscriber %d may start (%d) in class %d and was not picked: linked %v, %v; class turn %d", a.num, why, a.node.class, a.tenant.linked.Load(), a.tenant.ownLinked.Load(), d.turn)
		}
	}
}

// TestABulkheadHoldsBesideHangingNeighbours: the node is full of receivers that
// hang, slow and new budgets included. The subscriber with slots of its own is
// served at once, by as many as it reserves, whatever its own standing is.
func TestABulkheadHoldsBesideHangingNeighbours(t *testing.T) {
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprintf("slow=%v", slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *Config) { c.MaxInFlight = 8 })
				free := func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 8 }
				took := 100 * time.Millisecond
				if slow {
					took = 5 * time.Second
				}
				r.sub(1, func(s *delivery.Subscriber) { free(s); s.Reserved = 3 })
				for num := delivery.SubscriberNum(2); num <= 60; num++ {
					r.sub(num, free)
				}
				r.s.Kick(1)
				r.send.setAnswer(func(c call) delivery.Result {
					if c.sub != 1 {
						return hang(c, time.Hour, timeout())
					}
					return hang(c, took, status(200))
				})
				for i := range 6 { // known from now on, with an allowance for more than it reserves
					r.publish(fmt.Sprintf("warm-%d", i), "", 1)
					settle(took + time.Second)
				}
				var crowd []*delivery.Published
				for num := delivery.SubscriberNum(2); num <= 60; num++ {
					for i := range 4 {
						crowd = append(crowd, r.fact(r.event(fmt.Sprintf("%d-%d", num, i), nil), num))
					}
				}
				if err := r.q.publish(crowd...); err != nil {
					t.Fatal(err)
				}
				settle(5 * time.Minute)
				from, began := len(r.send.sent()), time.Now()
				var batch []*delivery.Published
				for i := range 9 {
					batch = append(batch, r.fact(r.event(fmt.Sprint(i), nil), 1))
				}
				if err := r.q.publish(batch...); err != nil {
					t.Fatal(err)
				}
				settle(5 * time.Minute)
				var waits []time.Duration
				for _, c := range r.send.sent()[from:] {
					if c.sub == 1 {
						waits = append(waits, c.at.Sub(began).Truncate(took))
					}
				}
				// The slow budget is full: three at a time. A fast one also finds the three
				// slots that hanging receivers must leave to others.
				want := []time.Duration{0, 0, 0, 0, 0, 0, took, took, took}
				if slow {
					want = []time.Duration{0, 0, 0, took, took, took, 2 * took, 2 * took, 2 * took}
				}
				if !slices.Equal(waits, want) {
					t.Errorf("attempts began after %v, want %v", waits, want)
				}
			})
		})
	}
}

// TestOthersNeverTakeReservedSlots, and the subscriber never more than its
// concurrency.
func TestOthersNeverTakeReservedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.StartAllowance = 8, 100 })
		free := func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 8 }
		r.sub(1, func(s *delivery.Subscriber) { free(s); s.Reserved, s.Concurrency = 3, 4 })
		r.sub(2, free)
		r.s.Kick(1)
		r.publish("warm", "", 1, 2)
		settle(time.Second)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Second, status(200)) })
		crowd := func(sub delivery.SubscriberNum, n int) {
			var batch []*delivery.Published
			for i := range n {
				batch = append(batch, r.fact(r.event(fmt.Sprintf("%d/%d/%d", sub, i, time.Now().UnixNano()), nil), sub))
			}
			if err := r.q.publish(batch...); err != nil {
				t.Fatal(err)
			}
		}
		inFlight := func(sub delivery.SubscriberNum) int { st, _ := r.s.Status(sub); return st.InFlight }
		wantInFlight := func(when string, one, two int) {
			t.Helper()
			if a, b := inFlight(1), inFlight(2); a != one || b != two {
				t.Errorf("%s: %d and %d in flight, want %d and %d", when, a, b, one, two)
			}
		}
		crowd(2, 200)
		settle(100 * time.Millisecond)
		wantInFlight("3 of 8 are reserved for an idle subscriber", 0, 5)
		if st, _ := r.s.Status(2); st.Waiting != delivery.ReasonReserved {
			t.Errorf("the other waits for %s, want %s", st.Waiting, delivery.ReasonReserved)
		}
		crowd(1, 60)
		settle(100 * time.Millisecond)
		wantInFlight("its own are there at once", 3, 5)
		settle(4 * time.Second)
		if n := inFlight(1); n < 3 || n > 4 || n+inFlight(2) != 8 {
			t.Errorf("%d in flight of at most 4, beside %d", n, inFlight(2))
		}
	})
}

// share tells what of a subscriber's own slots there is.
func (r *rig) share(num delivery.SubscriberNum) (size, own int) {
	d := r.s.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	if sh := d.shares[num]; sh != nil {
		return sh.size, sh.own
	}
	return 0, 0
}

func TestAReservationFollowsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.StartAllowance = 8, 100 })
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering, s.Concurrency, s.Reserved = delivery.OrderingNone, 8, 3 })
		r.s.Kick(1)
		synctest.Wait()
		want := func(when string, size, own int) {
			t.Helper()
			if s, o := r.share(1); s != size || o != own {
				t.Errorf("%s: %d slots of its own, %d in use, want %d and %d", when, s, o, size, own)
			}
		}
		change := func(f func(*delivery.Subscriber)) {
			r.dir.change(1, f)
			r.s.Kick(1)
			synctest.Wait()
		}
		want("at the start", 3, 0)
		if n := r.s.inMemory.Load(); n != 0 {
			t.Errorf("%d actors are in memory for an idle reservation", n)
		}
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Minute, status(200)) })
		for i := range 4 {
			r.publish(fmt.Sprint(i), "", 1)
		}
		settle(time.Second)
		want("four in flight", 3, 3)
		change(func(s *delivery.Subscriber) { s.Reserved = 1 })
		want("it was reduced", 1, 1)
		change(func(s *delivery.Subscriber) { s.Reserved = 6 })
		want("it was raised", 6, 4)
		change(func(s *delivery.Subscriber) { s.Status = delivery.SubscriberPaused })
		want("a paused subscriber reserves nothing", 0, 0)
		change(func(s *delivery.Subscriber) { s.Status, s.Reserved = delivery.SubscriberActive, 2 })
		want("it was resumed: what is in flight stays charged to what all share", 2, 0)
		settle(2 * time.Minute)
		want("all attempts ended", 2, 0)
		r.restart()
		want("a start knows nothing of it", 0, 0)
		r.s.Kick(1)
		synctest.Wait()
		want("until it is told", 2, 0)
		r.dir.change(1, func(s *delivery.Subscriber) { s.Status = delivery.SubscriberDeleted })
		r.s.Forget(1)
		want("it was deleted", 0, 0)
		d := r.s.dispatch
		if len(d.tenants) != 0 || d.promised != 0 || d.bound != d.budget {
			t.Errorf("%d tenants are remembered, %d slots promised, bounds %v", len(d.tenants), d.promised, d.bound)
		}
	})
}

// TestWhatADeletedTenantReservedIsFree, whoever of its actors is still there.
func TestWhatADeletedTenantReservedIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight = 8 })
		r.dir.tenants[1] = &delivery.Tenant{Num: 1, Version: 1, Reserved: 2}
		r.sub(1, func(s *delivery.Subscriber) { s.Reserved = 3 })
		if err := r.s.KickTenant(1); err != nil {
			t.Fatal(err)
		}
		r.s.Kick(1)
		synctest.Wait()
		d := r.s.dispatch
		if d.promised != 3 || d.keptLocked() != 3 {
			t.Errorf("%d are promised and %d kept free, want 3: the tenant's reservation holds its subscriber's", d.promised, d.keptLocked())
		}
		r.dir.gone = true
		if err := r.s.KickTenant(1); err != nil {
			t.Fatal(err)
		}
		if d.promised != 0 || d.keptLocked() != 0 || len(d.tenants) != 0 || len(d.reserving) != 0 {
			t.Errorf("%d are promised, %d kept, %d tenants known", d.promised, d.keptLocked(), len(d.tenants))
		}
	})
}

// TestAReservationIsKeptAlthoughWorkersGoOn: the node is full of a subscriber that
// competes for nothing more when another reserves slots.
func TestAReservationIsKeptAlthoughWorkersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.StartAllowance = 4, 100 })
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 4 })
		r.sub(2, nil)
		r.publish("warm", "", 1, 2)
		settle(time.Second)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 100*time.Millisecond, status(200)) })
		var batch []*delivery.Published
		for i := range 400 {
			batch = append(batch, r.fact(r.event(fmt.Sprint(i), nil), 1))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		r.dir.change(2, func(s *delivery.Subscriber) { s.Reserved = 1 })
		r.s.Kick(2)
		settle(200 * time.Millisecond)
		began := time.Now()
		r.publish("own", "", 2)
		settle(time.Minute)
		if at := r.send.sent()[slices.IndexFunc(r.send.sent(), func(c call) bool { return c.id == "own" })].at; at.Sub(began) > 5*time.Millisecond {
			t.Errorf("the first attempt in a reserved slot began after %s", at.Sub(began))
		}
	})
}
