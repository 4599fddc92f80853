package sched

import "github.com/dispatcher-engine/dispatcher/delivery"

// roomView is what decides whether an attempt may start: the bounds of its node,
// its budget, its tenant and its subscriber, and what others are promised.
type roomView struct {
	class    class // the budget; classOwn = the subscriber's own share has a free slot
	inFlight int   // of the class
	bound    int   // of the class

	charged int // slots of the node that are taken
	most    int // slots of the node
	kept    int // free slots of the node that are reserved

	tenantWaits    bool // it has no token, or another attempt asks for one
	tenantInFlight int
	tenantMost     int // 0 = no bound of its own
	tenantKept     int // free slots of the tenant that its subscribers reserve
	tenantUnused   int // of kept: slots that the tenant reserves and does not use
}

// roomWhy names why an attempt may start, or what it waits for.
type roomWhy uint8

const (
	roomShared       roomWhy = iota // a slot that is free to all
	roomTenant                      // one that is reserved for its tenant
	roomOwn                         // one of its subscriber's own share
	fullTenant                      // its tenant is at its bound, or out of tokens
	reservedInTenant                // what is left of its tenant's bound is reserved for others
	fullSlow                        // the budget of slow receivers is used up
	fullNew                         // so is that of receivers that nothing is known about
	fullNode                        // the node is at its bound
	reservedOnNode                  // what is left of the node's bound is reserved for others
)

// free reports whether the attempt may start.
func (w roomWhy) free() bool { return w <= roomOwn }

// reason is what the API says of an attempt that waits.
func (w roomWhy) reason() delivery.Reason {
	switch w {
	case fullTenant:
		return delivery.ReasonTenantLimited
	case reservedInTenant, reservedOnNode:
		return delivery.ReasonReserved
	case fullSlow:
		return delivery.ReasonSlowBudget
	default:
		return delivery.ReasonNodeLimited
	}
}

// decide says whether an attempt may start now. A subscriber's own share needs
// no room in any budget that others use: it waits for its tenant's bound and for
// the node's, and for nothing else.
func (v roomView) decide() roomWhy {
	switch {
	case v.tenantWaits || v.tenantMost > 0 && v.tenantInFlight >= v.tenantMost:
		return fullTenant
	case v.charged >= v.most:
		return fullNode
	case v.class == classOwn:
		if v.inFlight >= v.bound {
			return fullNode
		}
		return roomOwn
	case v.tenantMost > 0 && v.tenantInFlight+v.tenantKept >= v.tenantMost:
		return reservedInTenant
	case v.inFlight >= v.bound:
		return fullBudget(v.class)
	case v.charged+v.kept < v.most:
		return roomShared
	case v.tenantUnused > 0:
		return roomTenant
	default:
		return reservedOnNode
	}
}

func fullBudget(c class) roomWhy {
	switch c {
	case classSlow:
		return fullSlow
	case classNew:
		return fullNew
	default:
		return fullNode
	}
}

// Reservable is how many of n slots may be reserved: a quarter of them, and at
// least one, is left to all.
func Reservable(n int) int { return max(0, n-max(1, n/4)) }

// allotted is what a reservation gets when all of them together were promised
// more than there is: the same part of what it asked for as the others.
func allotted(asked, promised, reservable int) int {
	if promised <= reservable {
		return asked
	}
	return int(int64(asked) * int64(reservable) / int64(promised))
}

// ownBudget is the part of a budget that is left when slots were set aside as
// subscribers' own: as much of the rest as it was of all.
func ownBudget(budget, most, own int) int {
	return max(1, int(int64(budget)*int64(most-own)/int64(most)))
}
