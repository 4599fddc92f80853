package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Shape is one direction of a link.
type Shape struct {
	// Delay is how long a packet travels.
	Delay time.Duration `json:"delay_ns"`
	// Jitter is the most that chance adds to it. Order is kept.
	Jitter time.Duration `json:"jitter_ns,omitempty"`
	// Loss on the way, behind the queue.
	Loss Loss `json:"loss"`
	// Bits a second that the line carries; 0 = no bound.
	Bits float64 `json:"bits,omitempty"`
	// Queue is how many bytes may wait for the line; what does not fit is dropped.
	// 0 = what the line carries in a round trip, at least 64 KiB.
	Queue int `json:"queue,omitempty"`
}

// Validate reports what cannot be emulated.
func (s Shape) Validate() error {
	var errs []error
	if s.Delay < 0 || s.Delay > 10*time.Second || s.Jitter < 0 || s.Jitter > 10*time.Second {
		errs = append(errs, fmt.Errorf("delay %v, jitter %v: want 0 to 10 s", s.Delay, s.Jitter))
	}
	if s.Loss.Rate < 0 || s.Loss.Rate >= 1 || s.Loss.Burst < 0 {
		errs = append(errs, fmt.Errorf("loss %v in bursts of %v: want a share below 1 and a positive length", s.Loss.Rate, s.Loss.Burst))
	}
	if s.Bits < 0 || s.Queue < 0 || s.Bits > 0 && s.Bits < 8*mtu {
		errs = append(errs, fmt.Errorf("%v bits a second, queue of %d bytes: too little for a packet", s.Bits, s.Queue))
	}
	return errors.Join(errs...)
}

// minQueue holds a window of forty packets.
const minQueue = 64 << 10

// QueueSize is how many bytes may wait.
func (s Shape) QueueSize() int {
	if s.Queue > 0 {
		return s.Queue
	}
	return max(minQueue, int(s.Bits/8*2*s.Delay.Seconds()))
}

// fate is what becomes of a packet.
type fate uint8

const (
	passed fate = iota
	lost
	overflowed // the queue was full
	filtered   // a rule dropped it
)

// shaper decides what becomes of each packet of a direction, and when it
// arrives. It is a pure function of its seed and of the times that it is given,
// which must not go back. Times are of any clock.
type shaper struct {
	shape  Shape
	losses *losses
	rng    *rand.Rand
	busy   time.Duration // until when the line is
	last   time.Duration // arrival of the packet before
}

func newShaper(s Shape, seed uint64) *shaper {
	rng := rand.New(rand.NewPCG(seed, 0x6c696e6b)) //nolint:gosec // repeatable, not secret
	return &shaper{shape: s, losses: newLosses(s.Loss, rng), rng: rng}
}

// admit returns the fate of a packet that came at now, and when it arrives if it
// passes.
func (s *shaper) admit(now time.Duration, size int) (arrival time.Duration, f fate) {
	s.busy = max(s.busy, now)
	if s.shape.Bits > 0 {
		waiting := (s.busy - now).Seconds() * s.shape.Bits / 8
		if int(waiting)+size > s.shape.QueueSize() {
			return 0, overflowed
		}
		s.busy += time.Duration(float64(size) * 8 / s.shape.Bits * float64(time.Second))
	}
	if s.losses.lost() {
		return 0, lost
	}
	arrival = s.busy + s.shape.Delay
	if s.shape.Jitter > 0 {
		arrival += time.Duration(s.rng.Int64N(int64(s.shape.Jitter) + 1))
	}
	s.last = max(s.last, arrival)
	return s.last, passed
}
