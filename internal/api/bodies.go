package api

import (
	"bufio"
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// Events are published from memory, so that memory must not grow with how many
// large ones come at once: bodies above largeBody share a budget, and wait for
// their turn before they are read.
const (
	largeBody  = 1 << 20
	bodyBudget = 128 << 20
	// Whoever holds a part of the budget has to send: this long, and this fast.
	bodyGrace = 30 * time.Second
	bodyRate  = 256 << 10 // bytes a second
)

// bodies is the budget of large bodies, in bytes.
type bodies struct{ room *semaphore.Weighted }

func newBodies() *bodies { return &bodies{semaphore.NewWeighted(bodyBudget)} }

// hold waits for room for a body of up to size bytes, which decoding may double,
// and gives the sender until then to send it. It returns what gives the room back.
func (b *bodies) hold(ctx context.Context, w http.ResponseWriter, size int64) (release func(), err error) {
	if size <= largeBody {
		return func() {}, nil
	}
	weight := min(2*size, bodyBudget)
	if err := b.room.Acquire(ctx, weight); err != nil {
		return func() {}, err
	}
	within := bodyGrace + time.Duration(size/bodyRate)*time.Second
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // not every writer has one
	return func() { b.room.Release(weight) }, nil
}

// holdingLines is bufio.ScanLines that has room in the budget before a line grows
// large. hold is called once.
func holdingLines(hold func() error) bufio.SplitFunc {
	held := false
	return func(data []byte, atEOF bool) (int, []byte, error) {
		advance, token, err := bufio.ScanLines(data, atEOF)
		if advance == 0 && token == nil && err == nil && len(data) > largeBody/2 && !held {
			held = true
			err = hold()
		}
		return advance, token, err
	}
}
