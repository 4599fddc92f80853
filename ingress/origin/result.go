package origin

import (
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Result takes the result of a batch that [Batcher.Next] gave out and returns
// the events that are decided by it. jitter is a random number from 0 to 1, the
// only one that the machine needs. A batch that is not in flight is passed over.
func (b *Batcher) Result(id uint64, r Result, now time.Time, jitter float64) []Decision {
	i := slices.IndexFunc(b.pieces, func(p *piece) bool { return p.id == id && p.inFlight })
	if i < 0 {
		return nil
	}
	p := b.pieces[i]
	p.inFlight = false
	b.flying--
	b.wary = r.Verdict == VerdictSuspect
	var out []Decision
	switch r.Verdict {
	case VerdictDelivered:
		b.answered()
		b.lastSuccess = now
		out = b.decide(p, p.items, delivery.ReasonDelivered)
	case VerdictRejected:
		b.answered()
		out = b.rejected(p, now)
	case VerdictSuspect:
		b.downs = 0
		out = b.suspected(p, now, jitter)
	case VerdictInterrupted:
		p.due = now
	default:
		b.downs++
		b.holdUntil(now.Add(max(r.RetryAfter, b.backoff(b.downs-1, jitter))))
		p.due = now
		out = b.expire(p, now)
	}
	b.pieces = slices.DeleteFunc(b.pieces, func(p *piece) bool { return len(p.items) == 0 })
	return out
}

// answered notes that the origin is well.
func (b *Batcher) answered() {
	b.failures, b.downs, b.hold = 0, 0, time.Time{}
}

func (b *Batcher) holdUntil(t time.Time) {
	if t.After(b.hold) {
		b.hold = t
	}
}

// rejected ends an event that the origin refuses, or looks for it.
func (b *Batcher) rejected(p *piece, now time.Time) []Decision {
	if len(p.items) == 1 {
		return b.decide(p, p.items, delivery.ReasonRejected)
	}
	b.split(p, now)
	return nil
}

// suspected handles a failure that an event may have caused.
func (b *Batcher) suspected(p *piece, now time.Time, jitter float64) []Decision {
	b.failures++
	p.suspect++
	if b.failures >= downAfter {
		b.holdUntil(now.Add(b.backoff(b.failures-downAfter, jitter)))
	}
	if len(p.items) == 1 {
		if b.lastSuccess.After(p.lastFail) || p.lastFail.IsZero() {
			p.strikes++
		}
		if p.strikes >= b.cfg.Attempts {
			return b.decide(p, p.items, delivery.ReasonExhausted)
		}
	}
	p.lastFail = now
	out := b.expire(p, now)
	if len(p.items) > 1 && (p.halved || p.suspect >= b.cfg.SplitAfter) {
		b.split(p, now)
		return out
	}
	p.due = now.Add(b.backoff(p.level, jitter))
	p.level++
	return out
}

// split puts two halves in the place of a piece. They are due at once: if the
// origin is well, the culprit is found in a few requests, and if it is not, the
// origin's own wait holds them.
func (b *Batcher) split(p *piece, now time.Time) {
	half := len(p.items) / 2
	for _, items := range [][]Item{p.items[:half], p.items[half:]} {
		b.push(&piece{items: slices.Clone(items), attempts: p.attempts, halved: true, due: now})
	}
	p.items = nil
}

// expire ends the events of a failed piece that are too old.
func (b *Batcher) expire(p *piece, now time.Time) []Decision {
	var old []Item
	p.items = slices.DeleteFunc(slices.Clone(p.items), func(item Item) bool {
		gone := now.Sub(item.ReceivedAt) >= b.cfg.MaxAge
		if gone {
			old = append(old, item)
		}
		return gone
	})
	return b.decided(p, old, delivery.ReasonExpired)
}

// decide ends all events of a piece.
func (b *Batcher) decide(p *piece, items []Item, reason delivery.Reason) []Decision {
	p.items = nil
	return b.decided(p, items, reason)
}

func (b *Batcher) decided(p *piece, items []Item, reason delivery.Reason) []Decision {
	out := make([]Decision, len(items))
	for i, item := range items {
		out[i] = Decision{Item: item, Dead: reason != delivery.ReasonDelivered, Reason: reason, Attempts: p.attempts}
	}
	b.held -= len(items)
	return out
}

// maxLevel keeps the shift in range; with it the longest wait is reached long
// before for every sensible base.
const maxLevel = 30

// backoff is the wait after failure number level (from 0): doubled each time,
// capped, and shortened by up to half so that origins are not asked in step.
func (b *Batcher) backoff(level int, jitter float64) time.Duration {
	wait := b.cfg.BackoffMax
	if level < maxLevel && b.cfg.BackoffBase < b.cfg.BackoffMax>>level {
		wait = b.cfg.BackoffBase << level
	}
	return wait - time.Duration(jitter*float64(wait)/2)
}
