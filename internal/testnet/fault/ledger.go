package fault

import (
	"math"
	"sync"
)

// ledger is what a connection knows about its latest requests, so that a GOAWAY
// is as true as it can be: what it excludes and has not run does not run any
// more, and what has run makes the frame a lie, which is counted. Requests that
// were answered stay for a while, since their answers may still be on the way.
type ledger struct {
	mu     sync.Mutex
	begun  bool
	first  uint64 // the lowest stream that is excluded
	next   int
	recent [64]entry
}

type entry struct {
	stream uint64
	x      *exchange
}

// add takes a request in; false = it is excluded already.
func (l *ledger) add(stream uint64, x *exchange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stream >= l.limitLocked() {
		return false
	}
	l.recent[l.next%len(l.recent)] = entry{stream, x}
	l.next++
	return true
}

// exclude is called before a GOAWAY is sent because of one request, which knows
// itself what it is told.
func (l *ledger) exclude(first uint64, cause *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.begun = min(first, l.limitLocked()), true
	for _, e := range l.recent {
		if e.x != nil && e.x != cause && e.stream >= l.first {
			e.x.exclude()
		}
	}
}

func (l *ledger) limitLocked() uint64 {
	if !l.begun {
		return math.MaxUint64
	}
	return l.first
}
