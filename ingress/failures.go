package ingress

import (
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// FailureConfig limits what bad signatures may cost.
type FailureConfig struct {
	// PerSecond and Burst are the bucket of each tenant and client address: IPv4
	// by address, IPv6 by /56, which is what one customer of a network usually
	// has. Default: 5 a second, 50 at once.
	PerSecond float64
	Burst     int
	// Entries is how many buckets are held; those not used for longest go first.
	// Default: 16,384.
	Entries int
}

// failures is the token bucket of failed verifications. It is asked before
// anything else is known of a request, and charged only when one fails: a forger
// pays, and cannot use up what a provider at another address needs.
//
// A bucket is one number, the time at which it would be full again (GCRA).
type failures struct {
	interval time.Duration // a token's time
	burst    time.Duration // that of all of them
	buckets  *lru.Cache[failureKey, time.Time]
}

type failureKey struct {
	tenant string
	prefix netip.Prefix
}

// Bits of an address that count.
const (
	failureBits4 = 32
	failureBits6 = 56
)

func newFailures(cfg FailureConfig) (*failures, error) {
	buckets, err := lru.New[failureKey, time.Time](cfg.Entries)
	if err != nil {
		return nil, err
	}
	interval := time.Duration(float64(time.Second) / cfg.PerSecond)
	return &failures{interval: interval, burst: interval * time.Duration(cfg.Burst), buckets: buckets}, nil
}

func failureKeyOf(tenant string, client netip.Addr) failureKey {
	bits := failureBits4
	if client.Is6() {
		bits = failureBits6
	}
	prefix, _ := client.Prefix(bits) // an unknown client is one bucket
	return failureKey{tenant, prefix}
}

// wait returns how long tenant's requests from client are refused; 0 = they are
// not. It changes nothing, not even which bucket was used last.
func (f *failures) wait(tenant string, client netip.Addr, now time.Time) time.Duration {
	full, ok := f.buckets.Peek(failureKeyOf(tenant, client))
	if !ok {
		return 0
	}
	return max(0, full.Sub(now)-f.burst+f.interval)
}

// charge takes a token. Two charges at the same moment may count as one, which
// costs a single verification.
func (f *failures) charge(tenant string, client netip.Addr, now time.Time) {
	key := failureKeyOf(tenant, client)
	full, _ := f.buckets.Get(key)
	if full.Before(now) {
		full = now
	}
	// A flood of requests that were let in together must not shut its sender out
	// for longer than the whole bucket takes to fill.
	if full = full.Add(f.interval); full.Sub(now) > f.burst {
		full = now.Add(f.burst)
	}
	f.buckets.Add(key, full)
}
