package sched

import "github.com/dispatcher-engine/dispatcher/delivery"

// orderView is what decides about a keyed row that comes into memory.
type orderView struct {
	blocked bool         // the key has a head (B row)
	head    delivery.Seq // with blocked: the head's Row.First
	owned   bool         // another row of the key is ready or in flight
	strict  bool         // the subscriber is one key: nothing could overtake anyway
}

// orderDecision says what to do with a row of an ordering key.
type orderDecision uint8

// Decisions, in the words of the key's line.
const (
	orderGo   orderDecision = iota // its turn
	orderHead                      // it is the head that blocks its key: its turn
	orderWait                      // behind another row in memory
	orderPark                      // behind a head that waits for its retry: out of the way
	orderHold                      // strict: the whole subscriber waits, so it stays where it is
)

// orderRow decides about a row at its place. Claim order inside a key is: its
// head, then parked rows, then ready ones.
func orderRow(key delivery.KeyHash, place delivery.Place, first delivery.Seq, v orderView) orderDecision {
	switch {
	case key == 0:
		return orderGo
	case v.blocked && place == delivery.PlaceRetry && first == v.head:
		return orderHead
	case v.blocked && place == delivery.PlaceParked:
		// Parked rows come into memory only when no head is before them.
		if v.owned {
			return orderWait
		}
		return orderGo
	case v.blocked && v.strict:
		return orderHold
	case v.blocked:
		return orderPark
	case v.owned:
		return orderWait
	default:
		return orderGo
	}
}
