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

// proven waits until the path has carried what a request needs: the peer's
// SETTINGS, and a packet that it sent once it had our first ones, which it has to
// acknowledge. SETTINGS alone would not do: they may share a datagram with the
// handshake's last message, and then even a path that swallows everything with a
// short header lets them pass.
//
// So it takes one round trip after the handshake. It ends when nothing came for
// as long as a handshake may be silent. A connection that ends meanwhile is left
// to the pool, which says why.
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
		case <-w.conn.Context().Done():
			return nil
		case <-silence.C:
			return errUnproven
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
