package origin

import (
	"fmt"
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Item is one event, as the machine sees it.
type Item struct {
	Key        delivery.EventKey
	Size       int64     // bytes that it adds to a batch; see [EncodedSize]
	ReceivedAt time.Time // its age counts from here
}

// Batch is what goes out in one request. It is in flight until [Batcher.Result].
type Batch struct {
	ID    uint64 // names this batch to Result
	Items []Item
}

// Decision is the end of one event.
type Decision struct {
	Item
	// Dead: it goes to the dead-letter queue. Otherwise it was delivered.
	Dead bool
	// Reason is ReasonDelivered, ReasonRejected, ReasonExhausted or ReasonExpired.
	Reason delivery.Reason
	// Attempts is how many requests carried it.
	Attempts int
}

// Batcher is the state machine of one origin. One goroutine owns it.
//
// Invariant: an item is in exactly one of fresh and pieces; a piece is in flight
// or has a due time; held is the number of items in both.
type Batcher struct {
	cfg    Config
	fresh  []freshItem
	pieces []*piece
	held   int
	flying int // pieces in flight
	nextID uint64

	failures int // suspect results since anything got through
	downs    int // results that said nothing, since the origin answered
	// hold is when the origin as a whole may be asked again.
	hold        time.Time
	lastSuccess time.Time
	// wary: the last result was suspect, so what is not suspect goes first.
	wary bool
}

type freshItem struct {
	Item
	at time.Time // when it was added
}

// piece is a batch, or what was left of one.
type piece struct {
	id       uint64
	items    []Item
	attempts int // requests that carried its items, those of its parent included
	suspect  int // times that it was suspect, as it is now
	halved   bool
	// strikes are the failures of an event alone that other events survived.
	strikes  int
	lastFail time.Time
	level    int // exponent of the next wait
	due      time.Time
	inFlight bool
}

// before is the order in which due pieces go out. Of the suspects, halves that
// have not failed themselves go first, the smallest of them first: it is the
// likeliest to get through, and so to tell that the origin is well.
func (p *piece) before(q *piece) bool {
	if !p.clean() {
		if failed, other := p.suspect > 0, q.suspect > 0; failed != other {
			return other
		}
		if p.suspect == 0 && len(p.items) != len(q.items) {
			return len(p.items) < len(q.items)
		}
	}
	return p.due.Before(q.due)
}

// clean reports whether nothing speaks against the piece.
func (p *piece) clean() bool { return p.suspect == 0 && !p.halved }

// New returns an empty machine, or every fault of cfg.
func New(cfg Config) (*Batcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("origin config: %w", err)
	}
	return &Batcher{cfg: cfg}, nil
}

// Held returns the number of events inside.
func (b *Batcher) Held() int { return b.held }

// Room returns how many events [Batcher.Add] takes now. When the window is full
// of suspects there is room for one scout: without an event that gets through
// it would never be known whether the origin or the suspects are to blame.
func (b *Batcher) Room() int {
	if room := b.cfg.Window - b.held; room > 0 {
		return room
	}
	if len(b.fresh) > 0 || slices.ContainsFunc(b.pieces, (*piece).clean) {
		return 0
	}
	return 1
}

// Add takes an event and reports whether there was room for it.
func (b *Batcher) Add(item Item, now time.Time) bool {
	if b.Room() == 0 {
		return false
	}
	b.fresh = append(b.fresh, freshItem{item, now})
	b.held++
	return true
}

// Next returns a batch to send now. The caller owns its Items until Result.
func (b *Batcher) Next(now time.Time) (Batch, bool) {
	if b.flying >= b.limit() || now.Before(b.hold) {
		return Batch{}, false
	}
	p := b.pick(now)
	if p == nil {
		return Batch{}, false
	}
	p.inFlight = true
	p.attempts++
	b.flying++
	return Batch{ID: p.id, Items: slices.Clone(p.items)}, true
}

// limit is the number of requests that may be in flight. An origin that is down
// gets one.
func (b *Batcher) limit() int {
	if b.Down() {
		return 1
	}
	return b.cfg.MaxInFlight
}

// Down reports whether the origin is taken to be down: it was not reached, or
// nothing got through for some time.
func (b *Batcher) Down() bool { return b.downs > 0 || b.failures >= downAfter }

// pick chooses a piece. Suspects are older, so they go first; but after a
// failure, and while the origin is down, what is clean goes before them, as it
// tells the origin's fault from an event's.
func (b *Batcher) pick(now time.Time) *piece {
	suspect, clean := b.firstDue(now, false), b.firstDue(now, true)
	if clean == nil && b.ripe(now) && (suspect == nil || b.wary || b.Down()) {
		clean = b.cut()
	}
	if clean != nil && (suspect == nil || b.wary || b.Down()) {
		return clean
	}
	return suspect
}

// firstDue returns the due piece that goes before all others of its kind.
func (b *Batcher) firstDue(now time.Time, clean bool) *piece {
	var first *piece
	for _, p := range b.pieces {
		if p.inFlight || p.clean() != clean || p.due.After(now) {
			continue
		}
		if first == nil || p.before(first) {
			first = p
		}
	}
	return first
}

// ripe reports whether the fresh events make a batch now.
func (b *Batcher) ripe(now time.Time) bool {
	at, ok := b.ripeAt()
	return ok && !at.After(now)
}

// ripeAt is when the fresh events make a batch; the zero time if they do already.
func (b *Batcher) ripeAt() (time.Time, bool) {
	if len(b.fresh) == 0 {
		return time.Time{}, false
	}
	if n, full := b.prefix(); full || n < len(b.fresh) {
		return time.Time{}, true
	}
	return b.fresh[0].at.Add(b.cfg.MaxWait), true
}

// prefix is how many of the fresh events go into the next batch, and whether no
// further one could.
func (b *Batcher) prefix() (n int, full bool) {
	var bytes int64
	for _, item := range b.fresh {
		if n == b.cfg.MaxEvents || n > 0 && bytes+item.Size > b.cfg.MaxBytes {
			return n, true
		}
		bytes += item.Size
		n++
	}
	return n, n == b.cfg.MaxEvents || bytes >= b.cfg.MaxBytes
}

// cut makes a piece of the next fresh events.
func (b *Batcher) cut() *piece {
	n, _ := b.prefix()
	items := make([]Item, n)
	for i := range items {
		items[i] = b.fresh[i].Item
	}
	b.fresh = slices.Delete(b.fresh, 0, n)
	return b.push(&piece{items: items})
}

func (b *Batcher) push(p *piece) *piece {
	b.nextID++
	p.id = b.nextID
	b.pieces = append(b.pieces, p)
	return p
}

// Wake returns when [Batcher.Next] is worth asking again; false while only a
// Result or an Add can change anything.
func (b *Batcher) Wake() (time.Time, bool) {
	if b.flying >= b.limit() {
		return time.Time{}, false
	}
	wake, ok := b.ripeAt()
	for _, p := range b.pieces {
		if !p.inFlight && (!ok || p.due.Before(wake)) {
			wake, ok = p.due, true
		}
	}
	if ok && wake.Before(b.hold) {
		wake = b.hold
	}
	return wake, ok
}
