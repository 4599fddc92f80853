package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// Network is what the emulated link is set to, the same in both directions.
type Network struct {
	Name   string        `json:"name"`
	RTT    time.Duration `json:"rtt_ns"`
	Jitter time.Duration `json:"jitter_ns,omitempty"` // at most, each way
	Loss   float64       `json:"loss,omitempty"`      // share, each way
	Burst  float64       `json:"burst,omitempty"`     // mean packets lost in a row; 0 = uniform
	Bits   float64       `json:"bits,omitempty"`      // a second, each way; 0 = no bound
	Queue  int           `json:"queue,omitempty"`     // bytes; 0 = a round trip's worth
}

// Networks are the ones that have a name.
func Networks() []Network {
	return []Network{
		{Name: "lan", RTT: 2 * time.Millisecond},
		{Name: "wan", RTT: 50 * time.Millisecond, Bits: 100e6},
		{Name: "far", RTT: 200 * time.Millisecond, Bits: 100e6},
		{Name: "lossy", RTT: 50 * time.Millisecond, Bits: 100e6, Loss: 0.02},
		{Name: "bursty", RTT: 50 * time.Millisecond, Bits: 100e6, Loss: 0.02, Burst: 5},
		{Name: "slow", RTT: 100 * time.Millisecond, Bits: 5e6, Queue: 64 << 10, Jitter: 5 * time.Millisecond},
	}
}

// named returns networks by their names.
func named(names ...string) []Network {
	return slices.DeleteFunc(Networks(), func(n Network) bool { return !slices.Contains(names, n.Name) })
}

// loopback stands for no emulation.
var loopback = Network{Name: "loopback"}

// ParseNetwork reads the name of a network, or
// "NAME:rtt=50ms,jitter=5ms,loss=2%,burst=5,rate=100M,queue=256K", of which every
// part may be left out.
func ParseNetwork(spec string) (Network, error) {
	name, settings, custom := strings.Cut(spec, ":")
	if !custom {
		var names []string
		for _, n := range Networks() {
			if n.Name == spec {
				return n, nil
			}
			names = append(names, n.Name)
		}
		return Network{}, fmt.Errorf("network %q: there are %s; or describe one as NAME:rtt=50ms,loss=2%%", spec, strings.Join(names, ", "))
	}
	n := Network{Name: name}
	if name == "" {
		return n, fmt.Errorf("network %q: needs a name before the colon", spec)
	}
	for part := range strings.SplitSeq(settings, ",") {
		key, value, _ := strings.Cut(part, "=")
		if err := n.set(key, value); err != nil {
			return n, fmt.Errorf("network %q: %s: %w", spec, part, err)
		}
	}
	return n, n.Validate()
}

func (n *Network) set(key, value string) error {
	var err error
	switch key {
	case "rtt":
		n.RTT, err = time.ParseDuration(value)
	case "jitter":
		n.Jitter, err = time.ParseDuration(value)
	case "loss":
		n.Loss, err = share(value)
	case "burst":
		n.Burst, err = strconv.ParseFloat(value, 64)
	case "rate":
		n.Bits, err = scaled(value, 1000)
	case "queue":
		var bytes float64
		bytes, err = scaled(value, 1024)
		n.Queue = int(bytes)
	default:
		err = errors.New("want rtt, jitter, loss, burst, rate or queue")
	}
	return err
}

// share reads "2%" or "0.02".
func share(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	return v, err
}

// scaled reads "100M" with steps of 1000 (bits) or 1024 (bytes).
func scaled(text string, step float64) (float64, error) {
	factor := 1.0
	for i, unit := range []string{"K", "M", "G"} {
		if number, ok := strings.CutSuffix(strings.ToUpper(text), unit); ok {
			text = number
			for range i + 1 {
				factor *= step
			}
			break
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return v * factor, err
}

// shape is one direction of it.
func (n Network) shape() link.Shape {
	return link.Shape{
		Delay: n.RTT / 2, Jitter: n.Jitter, Loss: link.Loss{Rate: n.Loss, Burst: n.Burst}, Bits: n.Bits, Queue: n.Queue,
	}
}

// Validate reports what cannot be emulated.
func (n Network) Validate() error {
	if err := n.shape().Validate(); err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	return nil
}

// String describes it for a report.
func (n Network) String() string {
	if n == loopback {
		return "loopback, not emulated"
	}
	parts := []string{"RTT " + report.Duration(n.RTT)}
	if n.Jitter > 0 {
		parts = append(parts, "jitter up to "+report.Duration(n.Jitter)+" each way")
	}
	switch {
	case n.Loss > 0 && n.Burst > 1:
		parts = append(parts, fmt.Sprintf("%s lost each way in bursts of %s packets", report.Percent(n.Loss), report.Number(n.Burst)))
	case n.Loss > 0:
		parts = append(parts, report.Percent(n.Loss)+" lost each way, uniformly")
	}
	if n.Bits > 0 {
		parts = append(parts, report.Number(n.Bits/1e6)+" Mbit/s")
	}
	if n.Queue > 0 {
		parts = append(parts, "queue of "+report.Bytes(int64(n.Queue)))
	}
	return strings.Join(parts, ", ")
}
