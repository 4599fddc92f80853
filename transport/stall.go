package transport

import (
	"sync"
	"time"
)

// stallTimer notices a path that died after the handshake: no packet for three
// probe timeouts after a request (RFC 9002 section 6.2). By then the peer has
// been asked for an acknowledgement at least twice, and its QUIC stack answers
// those however slow its application is.
//
// One timer serves a connection, and it runs only while a request is young.
type stallTimer struct {
	wire *http3Wire

	mu      sync.Mutex
	timer   *time.Timer
	running bool
	stopped bool
	fired   bool      // the path was found dead
	packets uint64    // received when the last request was written, or at a second look
	since   time.Time // when that was
	// again: something came after the request, which may have been under way when
	// the path died. A second look asks whether we keep sending into silence.
	again bool
	sent  uint64 // with again: packets sent when the second look began
}

// The bounds of three probe timeouts. Below the first, a busy machine of ours
// would be taken for a dead path.
const (
	minStall = 500 * time.Millisecond
	maxStall = 3 * time.Second
	// maxLag is how late the timer may fire for its silence to count.
	maxLag = 100 * time.Millisecond
	// probesInSilence is how many packets sent and none received make a second
	// look's silence count: a probe is two packets, a late acknowledgement of ours
	// is one, and an idle connection sends none.
	probesInSilence = 2
	// peerAckDelay is the default max_ack_delay (RFC 9000 section 18.2).
	peerAckDelay = 25 * time.Millisecond
)

func (s *stallTimer) init(w *http3Wire) { s.wire = w }

// wait is three probe timeouts.
func (s *stallTimer) wait() time.Duration {
	stats := s.wire.conn.ConnectionStats()
	pto := stats.SmoothedRTT + max(4*stats.MeanDeviation, time.Millisecond) + peerAckDelay
	return min(max(3*pto, minStall), maxStall)
}

// arm begins the wait for a packet after a request.
func (s *stallTimer) arm(packets uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.running && s.packets == packets {
		return // the earlier request waits for the same packet
	}
	s.packets, s.since, s.again = packets, time.Now(), false
	if s.running {
		return // check finds the new start
	}
	s.running = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.wait(), s.check)
		return
	}
	s.timer.Reset(s.wait())
}

// check runs when the wait is over.
func (s *stallTimer) check() {
	s.mu.Lock()
	s.running = false
	if s.stopped || s.wire.watch.started() == 0 {
		s.mu.Unlock()
		return
	}
	stats := s.wire.conn.ConnectionStats()
	switch {
	case stats.PacketsReceived != s.packets:
		s.lookAgainLocked(stats.PacketsReceived, stats.PacketsSent)
		s.mu.Unlock()
		return
	case s.again && stats.PacketsSent < s.sent+probesInSilence:
		s.mu.Unlock()
		return // nothing waits for the peer: its application takes its time
	}
	left := s.look() - time.Since(s.since)
	if left < -maxLag {
		// The timer came late, so this machine is busy, and the packet may lie
		// in the socket. Only an undisturbed wait proves something.
		s.since = time.Now()
		left = s.look()
	}
	if left > 0 {
		s.running = true
		s.timer.Reset(left)
		s.mu.Unlock()
		return
	}
	s.stopped, s.fired = true, true // said once is enough
	s.mu.Unlock()
	l := s.wire.link
	l.pool.drain(l, EvictStalled)
	l.pool.cfg.Observer.stalled(l.route, l.alt)
}

// lookAgainLocked begins a second look, from what was received and sent so far.
func (s *stallTimer) lookAgainLocked(received, sent uint64) {
	s.packets, s.sent, s.since, s.again = received, sent, time.Now(), true
	s.running = true
	s.timer.Reset(s.look())
}

// look is how long silence must last. Probes come at growing distances, so a
// second look takes twice as long to see two of them.
func (s *stallTimer) look() time.Duration {
	if s.again {
		return 2 * s.wait()
	}
	return s.wait()
}

// dead reports whether the path was found dead.
func (s *stallTimer) dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

func (s *stallTimer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
