package protoselect

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Limits of the selector's clocks. They are constants because the golden
// timelines and the operators' guide describe them; what a node may want to
// change is in Config.
const (
	tcpWitness     = 30 * time.Second // how far apart an HTTP/3 failure and a TCP success may be to mean "broken"
	maxBroken      = 24 * time.Hour
	minHealthy     = 60 * time.Second // least time of answers that clears the count of breakages
	holdBase       = 10 * time.Second // after a failed dial that says nothing about the protocol
	holdMax        = 10 * time.Minute
	minRaceStagger = 100 * time.Millisecond
	maxRaceStagger = 2 * time.Second
	maxHoldFails   = 8
	maxShift       = 16 // 30 s << 16 is far beyond every cap
)

// brokenBase is the first backoff of each class of brokenness; it doubles with
// every breakage in a row. Zero = the class does not break an alternative.
func brokenBase(class delivery.Broken) time.Duration {
	switch class {
	case delivery.BrokenTimeout:
		return 60 * time.Second
	case delivery.BrokenExplicit, delivery.BrokenMisdirected:
		return 5 * time.Minute
	case delivery.BrokenCertificate:
		return time.Hour
	case delivery.BrokenAfterDeath:
		return 30 * time.Second
	default:
		return 0
	}
}

// brokenFor returns how long an alternative stays broken the n-th time in a row
// (n counts from 0), with ±20 % jitter; r is in [0, 1).
func brokenFor(class delivery.Broken, n int, r float64) time.Duration {
	d := min(brokenBase(class)<<min(n, maxShift), maxBroken)
	return min(time.Duration(float64(d)*(0.8+0.4*r)), maxBroken)
}

// smoothed folds a sample into a smoothed round-trip time with the gain of
// RFC 6298 §2.
func smoothed(srtt, sample time.Duration) time.Duration {
	if sample <= 0 {
		return srtt
	}
	if srtt == 0 {
		return sample
	}
	return srtt + (sample-srtt)/8
}

// staggerFor returns how long TCP waits for QUIC in a race: time enough for a
// handshake on a path with that round trip, or def when it is not known.
func staggerFor(srtt, def time.Duration) time.Duration {
	if srtt == 0 {
		return def
	}
	return min(max(srtt+srtt/2, minRaceStagger), maxRaceStagger)
}
