package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// NetworkCheck is what the link was found to do before it was measured with.
type NetworkCheck struct {
	Network Network       `json:"network"`
	RTT     stats.Latency `json:"rtt"`             // UDP, 30 bytes
	Loss    float64       `json:"loss"`            // of Sent datagrams, one way
	Sent    int           `json:"sent"`            // datagrams
	Bits    float64       `json:"bits,omitempty"`  // a second that arrived when more was sent
	Queue   float64       `json:"queue,omitempty"` // bytes that arrived after the sender had stopped
	Late    stats.Latency `json:"late"`            // what the emulator itself added
	Tries   int           `json:"tries"`           // until it was as asked for, or given up
	Faults  []string      `json:"faults,omitempty"`
}

// What the probes have to find. The link is exact in virtual time; what is
// allowed here is for the kernel's timers and for chance.
const (
	delayWithin = 0.02  // of the round trip
	rateWithin  = 0.03  // of the rate
	lossWithin  = 0.003 // 0.3 points
	queueWithin = 0.10  // of the queue
	// wakeUp is what waking two processes adds to a round trip.
	wakeUp = 0.3 // ms
)

// echoes is how many round trips are timed: about two seconds of them.
func (n Network) echoes() int {
	const most, least = 60, 15
	return min(most, max(least, int(2*time.Second/max(n.RTT, time.Millisecond))))
}

// probes is how many datagrams tell the loss: enough that chance alone is well
// below what is allowed. Losses in bursts of b are about 2b−1 times as
// uncertain.
func (n Network) probes() int {
	const least = 10_000
	const deviations = 3.0
	variance := n.Loss * (1 - n.Loss) * max(1, 2*n.Burst-1)
	return max(least, int(variance*deviations*deviations/(lossWithin*lossWithin)))
}

// fastest is the rate above which the probe would measure the emulator.
const fastest = 200e6

// check sends packets of its own through the link and compares what happens to
// them with what was asked for.
func (s *session) check(ctx context.Context, n Network) (NetworkCheck, error) {
	c := NetworkCheck{Network: n}
	s.take()
	var echoes []float64
	if err := s.client.Call(ctx, "echo", echoTask{Count: n.echoes(), Every: 2 * time.Millisecond, Wait: 2*n.RTT + 4*n.Jitter + 100*time.Millisecond}, &echoes); err != nil {
		return c, err
	}
	took := make([]time.Duration, len(echoes))
	for i, ms := range echoes {
		took[i] = milliseconds(ms)
	}
	c.RTT = stats.LatencyOf(took)
	if err := s.checkLoss(ctx, n, &c); err != nil {
		return c, err
	}
	c.Late = s.take().Late
	if n.Bits > 0 && n.Bits <= fastest {
		if err := s.checkRate(ctx, n, &c); err != nil {
			return c, err
		}
	}
	c.Faults = c.judge()
	return c, nil
}

// sunk waits until what was sent has arrived, and returns what did.
func (s *session) sunk(ctx context.Context, n Network) (sunkDatagrams, error) {
	var got sunkDatagrams
	if !sleepUntil(ctx, time.Now().Add(n.RTT+2*n.Jitter+200*time.Millisecond)) {
		return got, ctx.Err()
	}
	return got, s.server.Call(ctx, "sink", nil, &got)
}

// checkLoss sends small datagrams, slowly enough that no queue fills.
func (s *session) checkLoss(ctx context.Context, n Network, c *NetworkCheck) error {
	const size, onWire = 32, 60
	every := 75 * time.Microsecond
	if n.Bits > 0 {
		every = max(every, time.Duration(2*onWire*8/n.Bits*float64(time.Second)))
	}
	var sent blasted
	if err := s.client.Call(ctx, "blast", blastTask{Count: n.probes(), Size: size, Every: every}, &sent); err != nil {
		return err
	}
	got, err := s.sunk(ctx, n)
	if c.Sent = sent.Sent; c.Sent > 0 {
		c.Loss = 1 - float64(got.Datagrams)/float64(c.Sent)
	}
	return err
}

// checkRate sends twice what the line carries and looks at what comes out, and
// at what still comes when nothing is sent any more: that was in the queue.
func (s *session) checkRate(ctx context.Context, n Network, c *NetworkCheck) error {
	const size, onWire = 1200, 1228 // IP and UDP headers
	drain := time.Duration(float64(n.shape().QueueSize()) * 8 / n.Bits * float64(time.Second))
	during := max(300*time.Millisecond, 3*drain)
	every := time.Duration(onWire * 8 / (2 * n.Bits) * float64(time.Second))
	var sent blasted
	if err := s.client.Call(ctx, "blast", blastTask{Count: int(during / every), Size: size, Every: every}, &sent); err != nil {
		return err
	}
	if !sleepUntil(ctx, time.Now().Add(drain)) {
		return ctx.Err()
	}
	got, err := s.sunk(ctx, n)
	if got.Over > 0 && got.Datagrams > 1 {
		carried := onWire * 8 / (1 - n.Loss) // each stands for the lost ones, too
		c.Bits = float64(got.Datagrams-1) * carried / got.Over.Seconds()
		c.Queue = max(0, (got.Over-sent.Over).Seconds()) * n.Bits / 8
	}
	return err
}

// judge compares what was found with what was asked for: what is outside of the
// bounds is not the network that the report would name.
func (c NetworkCheck) judge() []string {
	var faults []string
	n := c.Network
	want := stats.Millis(n.RTT + n.Jitter) // jitter: half of it on average, each way
	switch {
	case c.RTT.N < n.echoes()/2:
		faults = append(faults, fmt.Sprintf("%d of %d echoes came back", c.RTT.N, n.echoes()))
	case math.Abs(c.RTT.P50-want) > delayWithin*want+wakeUp:
		faults = append(faults, fmt.Sprintf("a round trip takes %s ms, %s were asked for", report.Number(c.RTT.P50), report.Number(want)))
	}
	if c.Sent > 0 && math.Abs(c.Loss-n.Loss) > lossWithin {
		faults = append(faults, fmt.Sprintf("%s of the packets are lost, %s were asked for", report.Percent(c.Loss), report.Percent(n.Loss)))
	}
	if c.Bits > 0 && math.Abs(c.Bits/n.Bits-1) > rateWithin {
		faults = append(faults, fmt.Sprintf("the line carries %s Mbit/s, %s were asked for", report.Number(c.Bits/1e6), report.Number(n.Bits/1e6)))
	}
	if asked := float64(n.shape().QueueSize()); c.Bits > 0 && math.Abs(c.Queue/asked-1) > queueWithin {
		faults = append(faults, fmt.Sprintf("the queue holds %s, %s were asked for", report.Bytes(int64(c.Queue)), report.Bytes(int64(asked))))
	}
	if c.Late.P99 > lateMost {
		faults = append(faults, fmt.Sprintf("the emulator is late by %s ms at p99: it does not get the CPU time that it needs", report.Number(c.Late.P99)))
	}
	return faults
}
