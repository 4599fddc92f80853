package delivery

import "slices"

// State is where a delivery stands. The zero value is invalid.
type State uint8

// States of a delivery. The numbers are stored; doc.go has the drawing.
const (
	StateReceived  State = 1
	StateLeased    State = 2
	StateAttempted State = 3
	StateRetrying  State = 4
	StateHeld      State = 5 // derived: pending while the subscriber is paused or disabled
	StateDelivered State = 6
	StateDead      State = 7
	StateCanceled  State = 8
)

var stateNames = [...]string{
	StateReceived: "received", StateLeased: "leased", StateAttempted: "attempted", StateRetrying: "retrying",
	StateHeld: "held", StateDelivered: "delivered", StateDead: "dead", StateCanceled: "canceled",
}

// String returns the wire name.
func (s State) String() string {
	if s >= StateReceived && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// ParseState reads a wire name.
func ParseState(name string) (State, bool) {
	for s := StateReceived; int(s) < len(stateNames); s++ {
		if stateNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// States lists every state in wire order.
func States() []State {
	return []State{
		StateReceived, StateLeased, StateAttempted, StateRetrying,
		StateHeld, StateDelivered, StateDead, StateCanceled,
	}
}

// Terminal reports whether nothing happens to a delivery in this state unless
// somebody replays it.
func (s State) Terminal() bool {
	return s == StateDelivered || s == StateDead || s == StateCanceled
}

// transitions is the state machine; doc.go draws it.
var transitions = map[State][]State{
	StateReceived:  {StateLeased, StateHeld, StateDead, StateCanceled},
	StateLeased:    {StateAttempted, StateRetrying, StateDead, StateCanceled},
	StateAttempted: {StateDelivered, StateRetrying, StateDead, StateCanceled},
	StateRetrying:  {StateLeased, StateHeld, StateDead, StateCanceled},
	StateHeld:      {StateLeased, StateDead, StateCanceled},
	StateDead:      {StateLeased},
	StateDelivered: {StateLeased},
	StateCanceled:  nil,
}

// CanMove reports whether the state machine has an edge from s to next.
func (s State) CanMove(next State) bool {
	return slices.Contains(transitions[s], next)
}
