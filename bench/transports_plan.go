package bench

import (
	"math/rand/v2"
	"slices"
	"time"
)

// plan is a scenario: what each variant sends, first unmeasured, then measured
// in turns with the others.
type plan struct {
	variants []Variant
	learn    []block
	blocks   []block
	// The first core variants take part in all blocks, the others in the first
	// extra ones. 0 = all of them in all.
	core, extra int
	// cluster is how many consecutive samples share their fate; 1 = none.
	cluster int
	// visits says that every block visits every endpoint once, and that what is
	// known changes with them.
	visits bool
}

// takesPart says whether a variant is measured in a block.
func (p *plan) takesPart(variant, block int) bool {
	return p.core == 0 || variant < p.core || block < p.extra
}

// variants lists what is compared: every protocol with the first congestion
// control and, with all of them, those that use TCP again with the others. HTTP/3
// has its own congestion control.
func (r *transportsRun) variants(cold, all bool, without ...string) []Variant {
	var out []Variant
	for i, congestion := range r.congestion {
		if i > 0 && !all {
			break
		}
		for _, p := range r.c.Protocols {
			if i > 0 && p == "h3" || slices.Contains(without, p) {
				continue
			}
			v := Variant{Name: p, Protocol: p, Congestion: congestion, Cold: cold}
			if i > 0 {
				v.Name += "/" + congestion
			}
			out = append(out, v)
		}
	}
	return out
}

// plan makes a scenario's plan.
func (r *transportsRun) plan(name string, rng *rand.Rand) plan {
	switch name {
	case "sporadic":
		return r.sporadic(rng)
	case "burst":
		return r.burst()
	case "steady":
		return r.steady(rng)
	case "large":
		return r.large(rng)
	case "blocked":
		return r.blocked(rng)
	default:
		return r.mixed(rng)
	}
}

// h3Endpoints returns endpoints whose HTTP/3 works.
func h3Endpoints(count int) []endpoint {
	out := make([]endpoint, count)
	for i := range out {
		out[i] = endpointOf(i, kindH3)
	}
	return out
}

// visits gives each endpoint one visit, in an order drawn anew.
func visits(all []endpoint, rng *rand.Rand) []endpoint {
	out := make([]endpoint, len(all))
	for i, at := range rng.Perm(len(all)) {
		out[i] = all[at]
	}
	return out
}

// acquaint visits every endpoint twice: the first visit learns that there is
// HTTP/3, the second that it works. What is measured after that is an endpoint
// that has been known for a while; mixed measures those that are not.
func (r *transportsRun) acquaint(endpoints []endpoint, parallel int) []block {
	visit := block{Endpoints: endpoints, Parallel: parallel, Body: r.c.Body}
	return []block{visit, visit}
}

// coldEndpoints bounds how many endpoints take turns in being cold: enough that
// the last one of a block matters little, each visited a few times.
const (
	fewCold  = 50
	manyCold = 200
)

func coldEndpoints(samples int) int { return min(samples, min(manyCold, max(fewCold, samples/8))) }

// sporadic: many endpoints, each visited so seldom that no connection is left,
// but what was learned about it is.
func (r *transportsRun) sporadic(rng *rand.Rand) plan {
	endpoints := h3Endpoints(coldEndpoints(r.c.Samples))
	p := plan{
		variants: r.variants(true, false),
		learn:    r.acquaint(endpoints, r.parallel),
	}
	for left := r.c.Samples; left > 0; left -= len(endpoints) {
		order := visits(endpoints, rng)
		p.blocks = append(p.blocks, block{Endpoints: order[:min(left, len(order))], Parallel: r.parallel, Body: r.c.Body})
	}
	return p
}

// burst: an origin that was idle for so long that its connections are closed,
// and then many requests at once.
func (r *transportsRun) burst() plan {
	bursts := max(1, r.c.Samples/r.c.BurstSize)
	endpoints := h3Endpoints(bursts)
	p := plan{
		cluster:  r.c.BurstSize,
		variants: r.variants(true, false),
		learn:    r.acquaint(endpoints, r.parallel),
	}
	for _, e := range endpoints {
		b := block{Group: r.c.BurstSize, Body: r.c.Body}
		for range r.c.BurstSize {
			b.Endpoints = append(b.Endpoints, e)
		}
		p.blocks = append(p.blocks, b)
	}
	return p
}

// steadyEndpoints and steadyBlocks: a few origins that are always warm, each
// variant in a few turns. Requests near each other share connections, and so
// what a lost packet does to them.
const (
	steadyEndpoints = 4
	steadyBlocks    = 8
	steadyCluster   = 20
)

// steady: a constant rate to a few warm origins.
func (r *transportsRun) steady(rng *rand.Rand) plan {
	endpoints := h3Endpoints(steadyEndpoints)
	every := time.Duration(float64(time.Second) / r.c.SteadyRate)
	p := plan{variants: r.variants(false, false), learn: r.acquaint(endpoints, 1), cluster: steadyCluster}
	for i := range steadyBlocks {
		count := r.c.Samples*(i+1)/steadyBlocks - r.c.Samples*i/steadyBlocks
		b := block{Every: every, Body: r.c.Body}
		for range count {
			b.Endpoints = append(b.Endpoints, endpoints[rng.IntN(len(endpoints))])
		}
		if count > 0 {
			p.blocks = append(p.blocks, b)
		}
	}
	return p
}

// largeParallel keeps large bodies from filling the line.
const largeParallel = 8

// large: large bodies on cold connections, with every congestion control.
func (r *transportsRun) large(rng *rand.Rand) plan {
	endpoints := h3Endpoints(coldEndpoints(r.c.LargeSamples) / 2)
	if len(endpoints) == 0 {
		endpoints = h3Endpoints(1)
	}
	p := plan{
		variants: r.variants(true, true),
		core:     len(r.variants(true, false)),
		learn:    r.acquaint(endpoints, r.parallel),
	}
	for left := r.c.LargeSamples; left > 0; left -= len(endpoints) {
		if r.c.LargeSamples-left < r.c.CongestionSamples {
			p.extra++
		}
		order := visits(endpoints, rng)
		p.blocks = append(p.blocks, block{Endpoints: order[:min(left, len(order))], Parallel: largeParallel, Body: r.c.LargeBody})
	}
	return p
}

// mixed: an estate of which nothing is known at first. HTTP/3 alone is not
// compared: most of the estate cannot be reached with it.
func (r *transportsRun) mixed(rng *rand.Rand) plan {
	estate := r.c.Estate
	if r.c.Link == linkLoopback {
		estate.Dying = 0
	}
	return r.visited(estate.draw(rng), rng, "h3")
}

// blocked: an estate that advertises HTTP/3 and an egress through which no UDP
// passes.
func (r *transportsRun) blocked(rng *rand.Rand) plan {
	endpoints := make([]endpoint, r.c.BlockedEndpoints)
	for i := range endpoints {
		endpoints[i] = endpointOf(i, kindBlocked)
	}
	return r.visited(endpoints, rng, "h1", "h3")
}

// visited visits endpoints of which nothing is known at first.
func (r *transportsRun) visited(endpoints []endpoint, rng *rand.Rand, without ...string) plan {
	p := plan{variants: r.variants(true, false, without...), visits: true}
	for range r.c.Visits {
		p.blocks = append(p.blocks, block{Endpoints: visits(endpoints, rng), Parallel: r.parallel, Body: r.c.Body})
	}
	return p
}
