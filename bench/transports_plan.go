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

// coldEndpoints is how many endpoints take turns in being cold.
const coldEndpoints = 100

// sporadic: many endpoints, each visited so seldom that no connection is left,
// but what was learned about it is.
func (r *transportsRun) sporadic(rng *rand.Rand) plan {
	endpoints := h3Endpoints(min(coldEndpoints, r.c.Samples))
	p := plan{
		variants: r.variants(true, false),
		learn:    r.acquaint(endpoints, r.c.Parallel),
	}
	for left := r.c.Samples; left > 0; left -= len(endpoints) {
		order := visits(endpoints, rng)
		p.blocks = append(p.blocks, block{Endpoints: order[:min(left, len(order))], Parallel: r.c.Parallel, Body: r.c.Body})
	}
	return p
}

// burst: an origin that was idle for so long that its connections are closed,
// and then many requests at once.
func (r *transportsRun) burst() plan {
	bursts := max(1, r.c.Samples/r.c.BurstSize)
	endpoints := h3Endpoints(bursts)
	p := plan{
		variants: r.variants(true, false),
		learn:    r.acquaint(endpoints, r.c.Parallel),
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
// variant in a few turns.
const (
	steadyEndpoints = 4
	steadyBlocks    = 4
)

// steady: a constant rate to a few warm origins.
func (r *transportsRun) steady(rng *rand.Rand) plan {
	endpoints := h3Endpoints(steadyEndpoints)
	every := time.Duration(float64(time.Second) / r.c.SteadyRate)
	p := plan{variants: r.variants(false, false), learn: r.acquaint(endpoints, 1)}
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

// largeParallel keeps large bodies from sharing the line.
const (
	largeEndpoints = 20
	largeParallel  = 2
)

// large: large bodies on cold connections, with every congestion control.
func (r *transportsRun) large(rng *rand.Rand) plan {
	endpoints := h3Endpoints(min(largeEndpoints, r.c.LargeSamples))
	p := plan{
		variants: r.variants(true, true),
		learn:    r.acquaint(endpoints, r.c.Parallel),
	}
	for left := r.c.LargeSamples; left > 0; left -= len(endpoints) {
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
	endpoints := estate.draw(rng)
	p := plan{variants: r.variants(true, false, "h3")}
	for range r.c.Visits {
		p.blocks = append(p.blocks, block{Endpoints: visits(endpoints, rng), Parallel: r.c.Parallel, Body: r.c.Body})
	}
	return p
}
