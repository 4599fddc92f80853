package sched

import (
	"context"
	"sync"
	"time"
)

const (
	// mostTrips is how many round trips may be under way at once. As long as fewer
	// are, a draw goes at once; the more of them there are, the less a draw waits
	// for the end of one.
	mostTrips = 4
	// mostPerTrip bounds how long Redis is busy with one node's draws.
	mostPerTrip = 64
)

// question is a draw that Redis is to answer.
type question struct {
	draw   Draw
	until  time.Time // nobody waits for the answer after that
	answer chan redisAnswer
}

// batcher lets draws that meet share a round trip: those that come while all
// trips are under way go together on the next one.
type batcher struct {
	send func(context.Context, []*question)

	mu      sync.Mutex
	waiting []*question
	trips   int
}

// ask sends a question on its way. It does not block.
func (b *batcher) ask(ctx context.Context, q *question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, q)
	if b.trips < mostTrips {
		b.trips++
		// A trip is many callers': none of them may end it.
		go b.travel(context.WithoutCancel(ctx))
	}
}

// travel makes trips until no question waits.
func (b *batcher) travel(ctx context.Context) {
	for batch := b.next(); len(batch) > 0; batch = b.next() {
		b.send(ctx, batch)
	}
}

// next takes questions for one trip; none ends the traveller. Those that nobody
// waits for any more are dropped: their tokens would be lost.
func (b *batcher) next() []*question {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*question
	now, rest := time.Now(), b.waiting
	for len(rest) > 0 && len(batch) < mostPerTrip {
		if now.Before(rest[0].until) {
			batch = append(batch, rest[0])
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		rest = nil
	}
	b.waiting = rest
	if len(batch) == 0 {
		b.trips--
	}
	return batch
}
