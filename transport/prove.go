package transport

import (
	"context"
	"errors"
	"time"
)

// errUnproven is a handshake that was completed and then followed by silence.
var errUnproven = errors.New("the handshake passed, but nothing followed it")

// lookEvery bounds how often a proof looks at the packet count, for which quic-go
// has no event.
const (
	minLookEvery = time.Millisecond
	maxLookEvery = 50 * time.Millisecond
)

// minNudge is how long a peer may be silent, at least, before it is nudged.
const minNudge = 20 * time.Millisecond

// ignoredStream is a stream type that a peer has to ignore (RFC 9114 section
// 6.2.3), as a varint.
const ignoredStream = 0x21

// proven waits until the path has carried what a request needs: the peer's
// SETTINGS, and a packet that it sent once it had our first ones, which it has to
// acknowledge. SETTINGS alone would not do: they may share a datagram with the
// handshake's last message, and then even a path that swallows everything with a
// short header lets them pass.
//
// So it takes one round trip after the handshake. A goroutine that wakes up late
// finds that packet among those already counted, and nothing more to come: after
// two round trips of silence the peer is given something to acknowledge. The wait
// ends when nothing came for as long as a handshake may be silent. A connection
// that ends meanwhile is left to the pool, which says why.
func (w *http3Wire) proven(ctx context.Context, patience time.Duration) error {
	completed, half := time.Now(), w.rtt()/2
	silence := time.NewTimer(patience)
	defer silence.Stop()
	select {
	case <-w.client.ReceivedSettings():
		if time.Since(completed) > half {
			return nil // they have come in a flight of their own
		}
	case <-w.conn.Context().Done():
		return nil
	case <-silence.C:
		return errUnproven
	case <-ctx.Done():
		return ctx.Err()
	}
	look := time.NewTimer(half - time.Since(completed))
	defer look.Stop()
	every := min(max(half/2, minLookEvery), maxLookEvery)
	nudge := time.NewTimer(max(4*half, minNudge))
	defer nudge.Stop()
	var first uint64 // packets of the handshake's own flights
	for {
		select {
		case <-look.C:
			n := w.conn.ConnectionStats().PacketsReceived
			if first == 0 {
				first = n
			}
			if n > first {
				return nil
			}
			look.Reset(every)
		case <-nudge.C:
			w.nudge()
		case <-w.conn.Context().Done():
			return nil
		case <-silence.C:
			return errUnproven
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nudge sends what the peer has to acknowledge and nothing else. A peer that
// grants no stream for it is not nudged.
func (w *http3Wire) nudge() {
	if s, err := w.conn.OpenUniStream(); err == nil {
		_, _ = s.Write([]byte{ignoredStream})
		_ = s.Close()
	}
}
