package engine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// reserved is what is reserved beside the record that is about to change. It is
// read, and the change made, under Engine.reserving, so that two changes that fit
// alone cannot exceed the node together. A paused subscriber's reservation counts
// here, though its slots are free to all meanwhile: it must not fail to resume.
type reserved struct {
	tenant    *delivery.Tenant // whose record or subscriber changes
	inTenant  int              // slots that its other subscribers reserve
	elsewhere int              // slots that are reserved for other tenants
	most      int              // slots of the node
}

// reservedBeside reads what is reserved for all but one subscriber; 0 = none.
func (e *Engine) reservedBeside(t *delivery.Tenant, self delivery.SubscriberNum) (reserved, error) {
	r := reserved{tenant: t, most: e.sched.MaxInFlight()}
	list, err := e.registry.Reservations()
	if err != nil {
		return r, e.storeFault(err)
	}
	shares := map[delivery.TenantNum]int{}
	for _, s := range list {
		if s.Subscriber != self {
			shares[s.Tenant] += s.Slots
		}
	}
	r.inTenant = shares[t.Num]
	tenants := e.sched.ReservedForTenants()
	for num, slots := range shares {
		tenants[num] = max(tenants[num], slots)
	}
	delete(tenants, t.Num)
	for _, slots := range tenants {
		r.elsewhere += slots
	}
	return r, nil
}

// subscriber refuses slots of a subscriber that leave too little to others.
func (r reserved) subscriber(f *faults, slots int) {
	const field = "reserved_in_flight"
	if most := r.tenant.MaxShare; most > 0 && r.inTenant+slots > sched.Reservable(most) {
		f.add(field, strconv.Itoa(slots),
			fmt.Sprintf("at most %d: the tenant's subscribers may reserve %d of its max_in_flight %d, and others of them reserve %d",
				max(0, sched.Reservable(most)-r.inTenant), sched.Reservable(most), most, r.inTenant),
			"reserve fewer, or raise the tenant's max_in_flight")
	}
	r.node(f, max(r.tenant.Reserved, r.inTenant+slots), slots)
}

// node refuses a tenant's slots, those of its subscribers included, that leave too
// little of the node to others. asked is what the request asks for.
func (r reserved) node(f *faults, slots, asked int) {
	if room := sched.Reservable(r.most); r.elsewhere+slots > room {
		f.add("reserved_in_flight", strconv.Itoa(asked),
			fmt.Sprintf("at most %d of the node's %d attempts in flight may be reserved, and %d already are",
				room, r.most, r.elsewhere+slots-asked),
			"reserve fewer, or raise limits.in_flight")
	}
}

// tenantRecord refuses a tenant's bounds that contradict each other, or what its
// subscribers and other tenants reserve.
func (r reserved) tenantRecord(f *faults, t *delivery.Tenant, old *delivery.Tenant) {
	if t.MaxShare > 0 && t.Reserved > t.MaxShare {
		f.add("reserved_in_flight", strconv.Itoa(t.Reserved), fmt.Sprintf("at most max_in_flight, which is %d", t.MaxShare),
			"reserve fewer, or raise max_in_flight")
	}
	if lower := t.MaxShare > 0 && (old.MaxShare == 0 || t.MaxShare < old.MaxShare); lower && r.inTenant > sched.Reservable(t.MaxShare) {
		f.add("max_in_flight", strconv.Itoa(t.MaxShare),
			fmt.Sprintf("its subscribers reserve %d, and at most %d of %d may be reserved", r.inTenant, sched.Reservable(t.MaxShare), t.MaxShare),
			"lower their reserved_in_flight first, or allow more")
	}
	if t.Reserved > old.Reserved {
		r.node(f, max(t.Reserved, r.inTenant), t.Reserved)
	}
}

// reserve tells the scheduler of tenants and subscribers with a reservation,
// which counts from the start of the node.
func (e *Engine) reserve(ctx context.Context) error {
	if err := e.reserveForTenants(ctx); err != nil {
		return err
	}
	list, err := e.registry.Reservations()
	if err != nil {
		return err
	}
	promised := e.sched.ReservedForTenants()
	shares := map[delivery.TenantNum]int{}
	for _, s := range list {
		e.sched.Kick(s.Subscriber)
		shares[s.Tenant] += s.Slots
		promised[s.Tenant] = max(promised[s.Tenant], shares[s.Tenant])
	}
	sum := 0
	for _, slots := range promised {
		sum += slots
	}
	if room := sched.Reservable(e.sched.MaxInFlight()); sum > room {
		e.logger.Warn("reservations_exceed_node", "reserved", sum, "reservable", room,
			"hint", "each gets its part of what there is; raise limits.in_flight")
	}
	return nil
}
