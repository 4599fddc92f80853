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
		answer   func() report.Answer
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
		if a := ask.answer(); a.Text != "" || len(a.Points) > 0 {
			a.Question = ask.question
			s.Answers = append(s.Answers, a)
		}
	}
	return s
}

// each calls do with every result of a scenario and lists what it says.
func (r *transportsRun) each(scenario string, do func(s *ScenarioResult) string) []string {
	var said []string
	for i := range r.data.Scenarios {
		if s := &r.data.Scenarios[i]; s.Scenario == scenario {
			if text := do(s); text != "" {
				said = append(said, text)
			}
		}
	}
	return said
}

// under puts points under a text; without points there is no answer.
func under(points []string, text string) report.Answer {
	if len(points) == 0 {
		return report.Answer{}
	}
	return report.Answer{Text: text, Points: points}
}

func (r *transportsRun) setting(name string) Network {
	for _, n := range r.c.Networks {
		if n.Name == name {
			return n
		}
	}
	return Network{Name: name}
}

func (r *transportsRun) answerCold() report.Answer {
	return under(r.each("sporadic", func(s *ScenarioResult) string {
		h2, h3 := s.of("h2"), s.of("h3")
		if h2 == nil || h3 == nil {
			return ""
		}
		saved := h2.Latency.P50 - h3.Latency.P50
		text := fmt.Sprintf("%s: %s ms over HTTP/3 and %s ms over HTTP/2, %s ms or %s of the time saved",
			s.Network, report.Number(h3.Latency.P50), report.Number(h2.Latency.P50), report.Number(saved), report.Percent(saved/h2.Latency.P50))
		if rtt := stats.Millis(r.setting(s.Network).RTT); rtt > 0 {
			text += fmt.Sprintf(" (%s round trips of %s ms)", report.Number(saved/rtt), report.Number(rtt))
		}
		return text + "."
	}), "At the median:")
}

func (r *transportsRun) answerLoss() report.Answer {
	var said []string
	for _, scenario := range []struct{ name, words string }{{"sporadic", "cold"}, {"steady", "warm"}} {
		said = append(said, r.each(scenario.name, func(s *ScenarioResult) string {
			if r.setting(s.Network).Loss == 0 {
				return ""
			}
			return fmt.Sprintf("%s, %s: %s", s.Network, scenario.words, quantiles(s, r.c.Protocols))
		})...)
	}
	return under(said, "It is the tail that suffers; in ms, the median and the tail:")
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

func (r *transportsRun) answerBurst() report.Answer {
	return under(r.each("burst", func(s *ScenarioResult) string { return s.Network + ": " + quantiles(s, r.c.Protocols) }),
		fmt.Sprintf("%d at once; in ms from the start of the burst, the median and the tail:", r.c.BurstSize))
}

func (r *transportsRun) answerLarge() report.Answer {
	return under(r.each("large", func(s *ScenarioResult) string {
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
		return fmt.Sprintf("%s: %s; best at the median: %s", s.Network, quantiles(s, names), best.Variant.Name)
	}), fmt.Sprintf("%s on cold connections; in ms, the median and the tail; HTTP/3's congestion control is Reno, TCP's %s unless another one follows the slash:",
		report.Bytes(int64(r.c.LargeBody)), r.firstCongestion()))
}

func (r *transportsRun) firstCongestion() string {
	if len(r.congestion) == 0 || r.congestion[0] == "" {
		return "the kernel's default"
	}
	return r.congestion[0]
}

func (r *transportsRun) answerPorts() report.Answer {
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
		return report.Answer{Text: fmt.Sprintf("%s cold deliveries over HTTP/2 opened %s local TCP ports, of which %s then stay in TIME_WAIT for a minute%s; as many over HTTP/3 used %d UDP socket(s) for all peers. Where connections do stay in TIME_WAIT, Linux's %s ports are good for %s new connections a second to one address and port (one load balancer, say); HTTP/3 has no such bound.",
			counted(h2.Latency.N), counted(h2.TCPPorts), counted(h2.TimeWait), reset, h3.UDPPorts, counted(perMinute), counted(perMinute/60))}
	}
	return report.Answer{}
}

func (r *transportsRun) answerCPU() report.Answer {
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
		return report.Answer{}
	}
	return under(said, "In ms of the whole client process, TLS included, on "+r.data.Scenarios[0].Network+":")
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

func (r *transportsRun) answerBlocked() report.Answer {
	return under(r.each("blocked", func(s *ScenarioResult) string {
		auto, h2 := s.of("auto"), s.of("h2")
		if auto == nil || h2 == nil {
			return ""
		}
		found, remembered := auto.vain()
		p50 := func(x []float64) string { return report.Number(stats.Quantile(stats.Sorted(x), 0.5)) }
		return fmt.Sprintf("%s: of %s deliveries to %d endpoints %d had to find out, at a median of %s ms, which is what every delivery would take without memory; the others remembered and took %s ms; HTTP/2 alone takes %s ms. Averages: auto %s ms, HTTP/2 %s ms.",
			s.Network, counted(auto.Latency.N), r.c.BlockedEndpoints, len(found), p50(found), p50(remembered), p50(h2.Samples), report.Number(auto.Latency.Mean), report.Number(h2.Latency.Mean))
	}), "Every endpoint advertises HTTP/3, no UDP passes:")
}

func (r *transportsRun) answerWrong() report.Answer {
	var said []string
	r.each("mixed", func(s *ScenarioResult) string {
		for _, kind := range []struct{ name, words string }{{"wrong", "nobody listens there"}, {"blocked", "UDP is blocked"}, {"dying", "HTTP/3 dies after the handshake"}} {
			var visits []string
			for visit := 1; s.group(kind.name, visit, "auto").Latency.N > 0; visit++ {
				extra := s.group(kind.name, visit, "auto").Latency.Mean - s.group(kind.name, visit, "h2").Latency.Mean
				visits = append(visits, fmt.Sprintf("%+.0f", extra))
			}
			if len(visits) > 0 {
				said = append(said, fmt.Sprintf("%s, %s: %s", s.Network, kind.words, strings.Join(visits, ", ")))
			}
		}
		return ""
	})
	return under(said, "In ms more than over HTTP/2 on average: at the first visit (which learns the advert), the second (which tries it) and the later ones (which remember):")
}

// The regret that is aimed at.
const (
	aimP50 = 1.05
	aimP99 = 1.10
)

func (r *transportsRun) answerRegret() report.Answer {
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
		return report.Answer{Text: fmt.Sprintf("This run has too few samples to say: a regret is claimed from %s pairs on.", counted(fewSamples))}
	}
	text := fmt.Sprintf("Aimed at: at most 5 %% at p50 and 10 %% at p99. Met in %d of %d comparisons.", within, claimed)
	if len(misses) > 0 {
		text += " Not met:"
	}
	return report.Answer{Text: text, Points: misses}
}

// percentMore prints a ratio as what it is more than one.
func percentMore(ratio float64) string { return fmt.Sprintf("%+.1f", 100*(ratio-1)) }

func (r *transportsRun) answerPromises() report.Answer {
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
	return report.Answer{Text: text, Points: where}
}

// counted prints a whole number.
func counted(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return report.Number(float64(n))
}
