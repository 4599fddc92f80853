package protoselect

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// leg is one dial, or one place in the dialer's queue, that may outlive the
// delivery that started it. When that delivery has left, the slot is released and
// the connection stays warm.
//
// Invariant: the connection of a finished leg is held by at most one of: the
// leg (conn != nil, wanted), the taker, or nobody (released).
type leg struct {
	key     legKey
	started time.Time
	done    chan struct{} // closed when the verdict is in
	cancel  context.CancelFunc
	queued  bool // one delivery's place in the queue for a stream, see queueLocked

	mu       sync.Mutex
	wanted   bool // the delivery still waits
	finished bool
	conn     Conn
	err      *delivery.SendError
	verdict  Verdict
	watchers []func(Verdict)
}

// legKey makes the first handshake with an alternative single-flight: its verdict
// is told once, however many queue behind it.
type legKey struct {
	route delivery.Route
	alt   altKey
}

func newLeg(key legKey, cancel context.CancelFunc) *leg {
	return &leg{key: key, started: time.Now(), done: make(chan struct{}), cancel: cancel, verdict: VerdictPending}
}

// take returns the connection if it is up and nobody took it before.
func (l *leg) take() Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn
	l.conn = nil
	return c
}

// leave ends the delivery's interest. An untaken connection is released; a dial
// that nobody wants any more runs on unless abandon. A place in a queue is given
// up.
func (l *leg) leave(abandon bool) {
	l.mu.Lock()
	l.wanted = false
	spare := l.conn
	l.conn = nil
	stop := (abandon || l.queued) && !l.finished
	l.mu.Unlock()
	if spare != nil {
		spare.Release()
	}
	if stop {
		l.cancel()
	}
}

// idle reports whether nobody waits.
func (l *leg) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.wanted
}

// finish records the verdict and wakes everybody.
func (l *leg) finish(conn Conn, err *delivery.SendError, v Verdict) {
	l.mu.Lock()
	l.finished, l.err, l.verdict = true, err, v
	if conn != nil && l.wanted {
		l.conn, conn = conn, nil
	}
	watchers := l.watchers
	l.watchers = nil
	l.mu.Unlock()
	close(l.done)
	if conn != nil {
		conn.Release()
	}
	for _, f := range watchers {
		f(v)
	}
}

// failure returns the error of a finished leg, nil if it came up.
func (l *leg) failure() *delivery.SendError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// watch calls f with the verdict, at once if it is in, and returns the verdict
// as it is now.
func (l *leg) watch(f func(Verdict)) Verdict {
	l.mu.Lock()
	v := l.verdict
	if !l.finished {
		l.watchers = append(l.watchers, f)
		l.mu.Unlock()
		return v
	}
	l.mu.Unlock()
	f(v)
	return v
}

func verdictOf(err *delivery.SendError) Verdict {
	if err == nil {
		return VerdictUp
	}
	switch err.Broken {
	case delivery.BrokenTimeout:
		return VerdictTimeout
	case delivery.BrokenExplicit:
		return VerdictExplicit
	case delivery.BrokenCertificate:
		return VerdictCertificate
	}
	if err.Cause == delivery.CauseShutdown {
		return VerdictCanceled
	}
	return VerdictFailed
}
