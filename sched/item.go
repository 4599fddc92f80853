package sched

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// item is a row in memory. It is on exactly one list of its actor at a time:
// leasing → ready (or a line's waiters) → flight → settling → gone.
type item struct {
	row       delivery.Row
	held      *payload             // the event, if it is held in memory
	sub       *delivery.Subscriber // from claim: the record that the attempt uses
	slot      *slot                // from claim: what the attempt occupies
	takenAt   time.Time            // wall, when it came into memory
	readyAt   instant              // when it could first be sent
	claimedAt instant              // when it was
	ticket    instant              // since when its actor had waited for that
	fast      bool                 // came with its publish: its lease is in the row itself
	prior     bool                 // a dead node may have sent it
	probe     bool                 // the one attempt of a half-open circuit
	expired   bool                 // too old: to be disposed of, not sent
	windowed  bool                 // counts towards its window
	moved     delivery.Next        // settling: what became of it
	due       time.Time            // settling: when it is due again

	list       *itemList
	next, prev *item
}

var items = sync.Pool{New: func() any { return new(item) }}

// itemList is an intrusive list, so that moving a row costs no allocation.
type itemList struct {
	head, tail *item
	n          int
}

func (l *itemList) pushBack(it *item) {
	it.list, it.prev, it.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.next = it
	} else {
		l.head = it
	}
	l.tail = it
	l.n++
}

func (l *itemList) pushFront(it *item) {
	it.list, it.prev, it.next = l, nil, l.head
	if l.head != nil {
		l.head.prev = it
	} else {
		l.tail = it
	}
	l.head = it
	l.n++
}

// leave takes an item off whatever list it is on.
func (it *item) leave() {
	l := it.list
	if l == nil {
		return
	}
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		l.head = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		l.tail = it.prev
	}
	l.n--
	it.list, it.next, it.prev = nil, nil, nil
}

// payload is an event held in memory for all its deliveries that are in memory.
type payload struct {
	event *delivery.Event
	size  int64
	refs  atomic.Int32
	from  *budget
	era   uint64 // of the budget, when the event was published or read
	gone  bool   // given back; guarded by the budget's mutex
}

// eventOverhead stands for an event's fields beside its payload.
const eventOverhead = 512

// budget bounds payloads in memory over all actors. It holds each event once: what
// goes to many subscribers is read once for all of them that are about as far.
type budget struct {
	most int64
	used atomic.Int64
	era  atomic.Uint64 // raised when an event was deleted

	mu   sync.Mutex
	held map[delivery.EventKey]*payload
}

// find returns an event that is held, nil if it is not.
func (b *budget) find(key delivery.EventKey) *delivery.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.held[key]; p.current() {
		return p.event
	}
	return nil
}

// hold takes an event that was published or read in an era into memory for one
// delivery; nil when there is no room for it.
func (b *budget) hold(e *delivery.Event, era uint64) *payload {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.held[e.Key]; p != nil && p.era == era {
		p.refs.Add(1)
		return p
	}
	size := int64(len(e.Payload)) + eventOverhead
	if b.used.Add(size) > b.most {
		b.used.Add(-size)
		return nil
	}
	p := &payload{event: e, size: size, from: b, era: era}
	p.refs.Store(1)
	if b.held == nil {
		b.held = map[delivery.EventKey]*payload{}
	}
	b.held[e.Key] = p // one of an earlier era is found no more, and given back as usual
	return p
}

// current reports whether no event was deleted since p was held: after that only
// the queue knows what may still be sent.
func (p *payload) current() bool { return p != nil && p.era == p.from.era.Load() }

// release ends one delivery's use.
func (p *payload) release() {
	if p == nil || p.refs.Add(-1) > 0 {
		return
	}
	b := p.from
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.gone || p.refs.Load() > 0 { // somebody else was quicker
		return
	}
	p.gone = true
	if b.held[p.event.Key] == p {
		delete(b.held, p.event.Key)
	}
	b.used.Add(-p.size)
}
