package protoselect

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ProbeResult is what an operator's probe of an origin found.
type ProbeResult struct {
	HTTPSRecord LookupResult // zero when lookups are off or the host is no name
	TCP         ProbeDial
	HTTP3       []ProbeDial // one per alternative; the origin's own port when none is known
}

// ProbeDial is one handshake of a probe.
type ProbeDial struct {
	Authority string // host:port dialled
	Source    Source
	Protocol  delivery.Protocol // what came up; none = nothing
	Verdict   Verdict
	Detail    string // of a failure
	Took      time.Duration
	Reused    bool // a connection was up already: no new handshake
	Handshake delivery.Handshake
}

// Probe asks for the HTTPS record anew, then makes a handshake with every known
// alternative and one over TCP, at the same time. It sends no request, leaves
// what comes up warm, and takes what it finds into the memory: a handshake that
// succeeds ends a backoff. Alternatives that policy refuses are not dialled.
func (s *Selector) Probe(ctx context.Context, ep delivery.Endpoint) ProbeResult {
	var out ProbeResult
	o := ep.Route.Origin
	if s.m.askHTTPS && o.Scheme == "https" && isHostname(o.Host) {
		s.lookups.cache.Remove(recordName(o))
		s.mu.Lock()
		s.m.memory(ep.Route)
		s.unlock()
		started := time.Now()
		out.HTTPSRecord = s.lookups.resolve(ctx, o)
		out.HTTPSRecord.Took = time.Since(started)
		s.learn(out.HTTPSRecord, ep.Route)
		call(s.cfg.Observer.LookedUp, out.HTTPSRecord)
	}
	targets := s.probeTargets(ep.Route)
	out.HTTP3 = make([]ProbeDial, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { out.HTTP3[i] = s.probeQUIC(ctx, ep, t) })
	}
	out.TCP = s.probeTCP(ctx, ep)
	wg.Wait()
	return out
}

type probeTarget struct {
	candidate
	source Source
}

func (s *Selector) probeTargets(r delivery.Route) []probeTarget {
	if r.Origin.Scheme != "https" || !s.cfg.EgressHTTP3(r.Egress) {
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []probeTarget
	for _, a := range s.m.memory(r).alts {
		if source, _ := a.source(now); source != SourceNone && len(out) < maxAdverts {
			out = append(out, probeTarget{candidate{key: a.key, alt: a.delivery(), authority: a.authority}, source})
		}
	}
	if len(out) == 0 {
		out = append(out, probeTarget{ownPort(r), SourceAssumed})
	}
	return out
}

func (s *Selector) probeQUIC(ctx context.Context, ep delivery.Endpoint, t probeTarget) ProbeDial {
	started := time.Now()
	conn, dialErr := s.dialer.ProveQUIC(ctx, ep, t.alt)
	err := dialError(ctx, dialErr)
	s.quicDialed(ep.Route, t.key, conn, err, started, true)
	return probed(t.authority, t.source, conn, err, started)
}

func (s *Selector) probeTCP(ctx context.Context, ep delivery.Endpoint) ProbeDial {
	started := time.Now()
	conn, dialErr := s.dialer.DialTCP(ctx, ep, TCPOptions{})
	err := dialError(ctx, dialErr)
	s.tcpDialed(ep.Route, conn, err, started, true)
	return probed(ep.Route.Origin.Authority(), SourceNone, conn, err, started)
}

func probed(authority string, source Source, conn Conn, err *delivery.SendError, started time.Time) ProbeDial {
	d := ProbeDial{Authority: authority, Source: source, Verdict: verdictOf(err), Took: time.Since(started)}
	if err != nil {
		d.Detail = err.Detail
		return d
	}
	d.Protocol, d.Reused, d.Handshake = conn.Protocol(), conn.Reused(), conn.Handshake()
	conn.Release()
	return d
}
