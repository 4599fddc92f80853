package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// answers says in words what the figures of the run say. What was not measured
// has no answer.
func (r *transportsRun) answers() report.Section {
	s := report.Section{
		Title: "In short", Brief: true,
		Text: "What this run says to the questions that people have. The figures hold for these networks, this machine and bodies of " +
			report.Bytes(int64(r.c.Body)) + " unless another size is named.",
	}
	for _, ask := range []struct {
		question string
		answer   func() string
	}{
		{"What does HTTP/3 save on an endpoint without a connection?", r.answerCold},
		{"What does packet loss do to each?", r.answerLoss},
		{"And bursts: many requests at once to an idle origin?", r.answerBurst},
		{"And large bodies?", r.answerLarge},
		{"How many ports does it take, and what stays in TIME_WAIT?", r.answerPorts},
		{"What CPU time does a delivery cost the sender?", r.answerCPU},
		{"What does it cost when UDP is blocked, with and without memory?", r.answerBlocked},
		{"What does a wrong Alt-Svc cost?", r.answerWrong},
		{"What does choosing automatically cost against the best protocol?", r.answerRegret},
		{"Was anything lost or processed twice?", r.answerPromises},
	} {
		if text := ask.answer(); text != "" {
			s.Answers = append(s.Answers, report.Answer{Question: ask.question, Text: text})
		}
	}
	return s
}

// each calls do with every result of a scenario and joins what it says.
func (r *transportsRun) each(scenario string, do func(s *ScenarioResult) string) string {
	var said []string
	for i := range r.data.Scenarios {
		if s := &r.data.Scenarios[i]; s.Scenario == scenario {
			if text := do(s); text != "" {
				said = append(said, text)
			}
		}
	}
	return strings.Join(said, " ")
}

func (r *transportsRun) setting(name string) Network {
	for _, n := range r.c.Networks {
		if n.Name == name {
			return n
		}
	}
	return Network{Name: name}
}

func (r *transportsRun) answerCold() string {
	return r.each("sporadic", func(s *ScenarioResult) string {
		h2, h3 := s.of("h2"), s.of("h3")
		if h2 == nil || h3 == nil {
			return ""
		}
		saved := h2.Latency.P50 - h3.Latency.P50
		text := fmt.Sprintf("%s: %s ms over HTTP/3 and %s ms over HTTP/2 at the median, %s ms or %s of the time saved",
			s.Network, report.Number(h3.Latency.P50), report.Number(h2.Latency.P50), report.Number(saved), report.Percent(saved/h2.Latency.P50))
		if rtt := stats.Millis(r.setting(s.Network).RTT); rtt > 0 {
			text += fmt.Sprintf(" (%s round trips of %s ms)", report.Number(saved/rtt), report.Number(rtt))
		}
		return text + "."
	})
}

func (r *transportsRun) answerLoss() string {
	var said []string
	for _, scenario := range []struct{ name, words string }{{"sporadic", "cold"}, {"steady", "warm"}} {
		text := r.each(scenario.name, func(s *ScenarioResult) string {
			if r.setting(s.Network).Loss == 0 {
				return ""
			}
			return fmt.Sprintf("%s, %s: %s.", s.Network, scenario.words, quantiles(s, r.c.Protocols))
		})
		if text != "" {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "It is the tail that suffers; in ms, the median and the tail. " + strings.Join(said, " ")
}

// quantiles lists medians and tails by variant: the p99, or the p90 of a variant
// with too few samples for one.
func quantiles(s *ScenarioResult, names []string) string {
	var out []string
	for _, name := range names {
		v := s.of(name)
		switch {
		case v == nil:
		case v.Latency.N < fewSamples:
			out = append(out, fmt.Sprintf("%s %s (p90 %s)", name, report.Number(v.Latency.P50), report.Number(v.Latency.P90)))
		default:
			out = append(out, fmt.Sprintf("%s %s (p99 %s)", name, report.Number(v.Latency.P50), report.Number(v.Latency.P99)))
		}
	}
	return strings.Join(out, ", ")
}

func (r *transportsRun) answerBurst() string {
	text := r.each("burst", func(s *ScenarioResult) string { return fmt.Sprintf("%s: %s.", s.Network, quantiles(s, r.c.Protocols)) })
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%d at once; in ms from the start of the burst, the median and the tail. %s", r.c.BurstSize, text)
}

func (r *transportsRun) answerLarge() string {
	text := r.each("large", func(s *ScenarioResult) string {
		var names []string
		for _, v := range s.Variants {
			names = append(names, v.Variant.Name)
		}
		best := slices.MinFunc(s.Variants, func(a, b VariantResult) int {
			switch {
			case a.Latency.P50 < b.Latency.P50:
				return -1
			case a.Latency.P50 > b.Latency.P50:
				return 1
			}
			return 0
		})
		return fmt.Sprintf("%s: %s; best at the median: %s.", s.Network, quantiles(s, names), best.Variant.Name)
	})
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%s on cold connections; in ms, the median and the tail; HTTP/3's congestion control is Reno, TCP's %s unless another one follows the slash. %s",
		report.Bytes(int64(r.c.LargeBody)), r.firstCongestion(), text)
}

func (r *transportsRun) firstCongestion() string {
	if len(r.congestion) == 0 || r.congestion[0] == "" {
		return "the kernel's default"
	}
	return r.congestion[0]
}

func (r *transportsRun) answerPorts() string {
	for i := range r.data.Scenarios {
		s := &r.data.Scenarios[i]
		h2, h3 := s.of("h2"), s.of("h3")
		if s.Scenario != "sporadic" || h2 == nil || h3 == nil || h2.TCPPorts == 0 {
			continue
		}
		reset := ""
		if h2.TimeWait == 0 {
			reset = " (the sender's socket is closed when the server's farewell comes, and answers with a reset)"
		}
		const perMinute = 28_232 // net.ipv4.ip_local_port_range of Linux, by default
		return fmt.Sprintf("%s cold deliveries over HTTP/2 opened %s local TCP ports, of which %s then stay in TIME_WAIT for a minute%s; as many over HTTP/3 used %d UDP socket(s) for all peers. Where connections do stay in TIME_WAIT, Linux's %s ports are good for %s new connections a second to one address and port (one load balancer, say); HTTP/3 has no such bound.",
			counted(h2.Latency.N), counted(h2.TCPPorts), counted(h2.TimeWait), reset, h3.UDPPorts, counted(perMinute), counted(perMinute/60))
	}
	return ""
}

func (r *transportsRun) answerCPU() string {
	var said []string
	for _, of := range []struct{ scenario, words string }{{"sporadic", "cold"}, {"steady", "warm"}, {"large", "large bodies, cold"}} {
		for i := range r.data.Scenarios {
			s := &r.data.Scenarios[i]
			if s.Scenario != of.scenario || s.Network != r.data.Scenarios[0].Network {
				continue
			}
			var costs []string
			for _, p := range r.c.Protocols {
				if v := s.of(p); v != nil {
					costs = append(costs, p+" "+report.Number(v.CPU/float64(max(1, v.Latency.N))))
				}
			}
			said = append(said, of.words+": "+strings.Join(costs, ", "))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "In ms of the whole client process, TLS included, on " + r.data.Scenarios[0].Network + ". " + strings.Join(said, "; ") + "."
}

// vain splits the samples of auto into those that raced in vain and the others.
func (v *VariantResult) vain() (found, remembered []float64) {
	for i, ms := range v.Samples {
		if _, raced := slices.BinarySearch(v.Vain, i); raced {
			found = append(found, ms)
			continue
		}
		remembered = append(remembered, ms)
	}
	return found, remembered
}

func (r *transportsRun) answerBlocked() string {
	return r.each("blocked", func(s *ScenarioResult) string {
		auto, h2 := s.of("auto"), s.of("h2")
		if auto == nil || h2 == nil {
			return ""
		}
		found, remembered := auto.vain()
		p50 := func(x []float64) string { return report.Number(stats.Quantile(stats.Sorted(x), 0.5)) }
		text := fmt.Sprintf("%s: of %s deliveries to %d endpoints with UDP blocked everywhere, %d had to find out, at a median of %s ms; the others remembered, %s ms; HTTP/2 alone takes %s ms.",
			s.Network, counted(auto.Latency.N), r.c.BlockedEndpoints, len(found), p50(found), p50(remembered), p50(h2.Samples))
		return text + fmt.Sprintf(" Without memory every delivery would pay the difference; with it, the average of all is %s ms against %s.", report.Number(auto.Latency.Mean), report.Number(h2.Latency.Mean))
	})
}

func (r *transportsRun) answerWrong() string {
	return r.each("mixed", func(s *ScenarioResult) string {
		var said []string
		for _, kind := range []struct{ name, words string }{{"wrong", "nobody listens"}, {"blocked", "UDP is blocked"}, {"dying", "it dies after the handshake"}} {
			var visits []string
			for visit := 1; s.group(kind.name, visit, "auto").Latency.N > 0; visit++ {
				extra := s.group(kind.name, visit, "auto").Latency.Mean - s.group(kind.name, visit, "h2").Latency.Mean
				visits = append(visits, fmt.Sprintf("%+.0f", extra))
			}
			if len(visits) > 0 {
				said = append(said, fmt.Sprintf("%s: %s", kind.words, strings.Join(visits, ", ")))
			}
		}
		if len(said) == 0 {
			return ""
		}
		return fmt.Sprintf("On %s, ms more than over HTTP/2 on average, at the first visit (which learns the advert), the second (which tries it) and the later ones (which remember). Where %s.", s.Network, strings.Join(said, ". Where "))
	})
}

// The regret that is aimed at.
const (
	aimP50 = 1.05
	aimP99 = 1.10
)

func (r *transportsRun) answerRegret() string {
	claimed, within := 0, 0
	var misses []string
	for _, s := range r.data.Scenarios {
		for _, g := range s.Regrets {
			aim := map[float64]float64{0.5: aimP50, 0.99: aimP99}[g.Quantile]
			if g.N < fewSamples || aim == 0 || g.Variant != "auto" {
				continue
			}
			claimed++
			if g.Ratio.Value <= aim {
				within++
				continue
			}
			misses = append(misses, fmt.Sprintf("%s on %s at p%.0f: %s %%, interval %s to %s (best: %s)", s.Scenario, s.Network, 100*g.Quantile,
				percentMore(g.Ratio.Value), percentMore(g.Ratio.Low), percentMore(g.Ratio.High), g.Best))
		}
	}
	if claimed == 0 {
		return fmt.Sprintf("This run has too few samples to say: a regret is claimed from %s pairs on.", counted(fewSamples))
	}
	text := fmt.Sprintf("Aimed at: at most 5 %% at p50 and 10 %% at p99. Met in %d of %d comparisons.", within, claimed)
	if len(misses) > 0 {
		text += " Not met: " + strings.Join(misses, "; ") + "."
	}
	return text
}

// percentMore prints a ratio as what it is more than one.
func percentMore(ratio float64) string { return fmt.Sprintf("%+.1f", 100*(ratio-1)) }

func (r *transportsRun) answerPromises() string {
	var sent, failed, resent int
	var twice int64
	var where []string
	for _, s := range r.data.Scenarios {
		for _, v := range s.Variants {
			sent += v.Latency.N
			failed += v.Failed
			twice += v.Duplicates
			resent += int(v.Resent)
			if v.Failed > 0 || v.Duplicates > 0 {
				where = append(where, fmt.Sprintf("%s on %s, %s: %d unanswered, %d twice", s.Scenario, s.Network, v.Variant.Name, v.Failed, v.Duplicates))
			}
		}
	}
	text := fmt.Sprintf("Of %s requests, %d had no answer after %d tries, %d were processed twice because the first answer did not arrive, and %d were written twice within one try (which the transport promises never to do).",
		counted(sent), failed, r.c.Tries, twice, resent)
	if len(where) > 0 {
		text += " " + strings.Join(where, "; ") + "."
	}
	return text
}

// counted prints a whole number.
func counted(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return report.Number(float64(n))
}
