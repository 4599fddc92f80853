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
	RTT     stats.Latency `json:"rtt"`            // UDP, 30 bytes
	Loss    float64       `json:"loss"`           // of Sent datagrams, one way
	Sent    int           `json:"sent"`           // datagrams
	Bits    float64       `json:"bits,omitempty"` // a second that arrived when more was sent
	Late    stats.Latency `json:"late"`           // what the emulator itself added
	Faults  []string      `json:"faults,omitempty"`
}

// echoes is how many round trips are timed: about two seconds of them.
func (n Network) echoes() int {
	const most, least = 60, 10
	return min(most, max(least, int(2*time.Second/max(n.RTT, time.Millisecond))))
}

const (
	probeDatagrams = 3000
	// fastest is the rate above which the probe would measure the emulator.
	fastest = 200e6
)

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
		took[i] = time.Duration(ms * float64(time.Millisecond))
	}
	c.RTT = stats.LatencyOf(took)
	if err := s.checkLoss(ctx, n, &c); err != nil {
		return c, err
	}
	if n.Bits > 0 && n.Bits <= fastest {
		if err := s.checkRate(ctx, n, &c); err != nil {
			return c, err
		}
	}
	c.Late = s.take().Late
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
	const size, onWire = 100, 128
	every := 100 * time.Microsecond
	if n.Bits > 0 {
		every = max(every, time.Duration(2*onWire*8/n.Bits*float64(time.Second)))
	}
	if err := s.client.Call(ctx, "blast", blastTask{Count: probeDatagrams, Size: size, Every: every}, &c.Sent); err != nil {
		return err
	}
	got, err := s.sunk(ctx, n)
	if c.Sent > 0 {
		c.Loss = 1 - float64(got.Datagrams)/float64(c.Sent)
	}
	return err
}

// checkRate sends twice what the line carries and looks at what comes out.
func (s *session) checkRate(ctx context.Context, n Network, c *NetworkCheck) error {
	const size, onWire = 1200, 1228 // IP and UDP headers
	const during = 300 * time.Millisecond
	every := time.Duration(onWire * 8 / (2 * n.Bits) * float64(time.Second))
	sent := 0
	if err := s.client.Call(ctx, "blast", blastTask{Count: int(during / every), Size: size, Every: every}, &sent); err != nil {
		return err
	}
	// The line goes on until its queue is empty.
	rest := time.Duration(float64(n.shape().Queue) * 8 / n.Bits * float64(time.Second))
	if !sleepUntil(ctx, time.Now().Add(rest)) {
		return ctx.Err()
	}
	got, err := s.sunk(ctx, n)
	if got.Over > 0 && got.Datagrams > 1 {
		c.Bits = float64(got.Datagrams-1) * onWire * 8 / got.Over.Seconds() / (1 - n.Loss)
	}
	return err
}

// judge compares what was found with what was asked for. The bounds leave room
// for chance (loss: four standard deviations) and for a busy machine; what is
// outside of them is not the network that the report would name.
func (c NetworkCheck) judge() []string {
	var faults []string
	n := c.Network
	want := stats.Millis(n.RTT + n.Jitter) // jitter: half of it on average, each way
	slack := max(1.0, 0.05*want) + stats.Millis(n.Jitter)/2
	switch {
	case c.RTT.N < n.echoes()/2:
		faults = append(faults, fmt.Sprintf("%d of %d echoes came back", c.RTT.N, n.echoes()))
	case math.Abs(c.RTT.P50-want) > slack:
		faults = append(faults, fmt.Sprintf("a round trip takes %s ms, %s were asked for", report.Number(c.RTT.P50), report.Number(want)))
	}
	if c.Sent > 0 {
		// Losses in bursts of b are about 2b−1 times as uncertain.
		deviation := math.Sqrt(n.Loss * (1 - n.Loss) * max(1, 2*n.Burst-1) / float64(c.Sent))
		if math.Abs(c.Loss-n.Loss) > 4*deviation+0.002 {
			faults = append(faults, fmt.Sprintf("%s of the packets are lost, %s were asked for", report.Percent(c.Loss), report.Percent(n.Loss)))
		}
	}
	if c.Bits > 0 && math.Abs(c.Bits/n.Bits-1) > 0.1 {
		faults = append(faults, fmt.Sprintf("the line carries %s Mbit/s, %s were asked for", report.Number(c.Bits/1e6), report.Number(n.Bits/1e6)))
	}
	const lateMost = 2 // ms
	if c.Late.P99 > lateMost {
		faults = append(faults, fmt.Sprintf("the emulator is late by %s ms at p99: it does not get the CPU time that it needs", report.Number(c.Late.P99)))
	}
	return faults
}
