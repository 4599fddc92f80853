package protoselect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestFasterConnectionGetsTheRequest(t *testing.T) {
	tests := []struct {
		name      string
		quic, tcp time.Duration
		winner    delivery.Protocol
		took      time.Duration
		loser     string
		later     Verdict // what the observer hears in the end
		dials     int     // over TCP
	}{
		{"QUIC before the stagger", 100 * time.Millisecond, 10 * time.Millisecond, delivery.ProtocolHTTP3, 100 * time.Millisecond, "tcp:not_started", VerdictNotStarted, 0},
		{"QUIC after the stagger", 260 * time.Millisecond, 50 * time.Millisecond, delivery.ProtocolHTTP3, 260 * time.Millisecond, "tcp:pending", VerdictUp, 1},
		{"TCP", 400 * time.Millisecond, 50 * time.Millisecond, delivery.ProtocolHTTP2, 300 * time.Millisecond, "h3:pending", VerdictUp, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var races record[Race]
				s, n := setup(t, Config{Observer: Observer{Raced: races.add}})
				n.quic, n.tcp = after(tt.quic), tcpAfter(tt.tcp)
				ep := endpoint("h.example")
				advertise(s, ep.Route, `h3=":443"`)
				start := time.Now()
				_, tr := mustDo(t, s, ep)
				if took := time.Since(start); took != tt.took || tr.Protocol != tt.winner {
					t.Errorf("%v won after %v", tr.Protocol, took)
				}
				if got := tr.RaceLoser(); got != tt.loser {
					t.Errorf("loser %q", got)
				}
				time.Sleep(time.Second)
				_, tcp, writes, held := n.counts()
				if tcp != tt.dials || writes != 1 || held != 0 {
					t.Errorf("%d TCP dials, %d writes, %d slots held", tcp, writes, held)
				}
				if got := races.get(); len(got) != 1 || got[0].Loser != tt.later || got[0].Winner != tt.winner || got[0].Took != tt.took {
					t.Errorf("observed %+v", got)
				}
				// Whoever lost and came up is warm.
				if _, tr = mustDo(t, s, ep); !tr.Reused {
					t.Errorf("trace %+v", tr)
				}
			})
		})
	}
}

// TestTieGoesToQUIC: TCP is up, and so is QUIC when it is looked at.
func TestTieGoesToQUIC(t *testing.T) {
	var races record[Race]
	s, n := setup(t, Config{Observer: Observer{Raced: races.add}})
	ep := endpoint("h.example")
	up := func(proto delivery.Protocol) *leg {
		l := newLeg(legKey{route: ep.Route}, func() {})
		l.wanted = true
		l.finish(n.add(&fakeConn{net: n, route: ep.Route, proto: proto}), nil, VerdictUp)
		return l
	}
	r := race{s: s, ep: ep, started: time.Now(), quic: up(delivery.ProtocolHTTP3), tcp: up(delivery.ProtocolHTTP2), tcpUsed: true}
	l, ok := r.takeTCP()
	if !ok || !l.h3 || r.loser != VerdictUp || len(races.get()) != 1 {
		t.Fatalf("link %+v, loser %q", l, r.loser)
	}
	l.conn.Release()
}

func TestTCPStartsAtOnceWhenQUICFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = func(ctx context.Context, _ delivery.Alternative) error {
			_ = wait(ctx, 20*time.Millisecond)
			return dialFailure(delivery.BrokenExplicit)
		}
		n.tcp = tcpAfter(30 * time.Millisecond)
		start := time.Now()
		_, tr := mustDo(t, s, ep)
		if time.Since(start) != 50*time.Millisecond || tr.RaceLoser() != "h3:explicit" {
			t.Errorf("took %v, loser %q", time.Since(start), tr.RaceLoser())
		}
		if st := stateOf(s, ep.Route); st != StateBroken {
			t.Errorf("state %v", st)
		}
	})
}

// TestBusyConnectionsAreNoNews: a dial that waited for a stream in vain, or found
// a connection that was up already, says nothing about HTTP/3.
func TestBusyConnectionsAreNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.cool()
		n.quic = func(context.Context, delivery.Alternative) error { return neverErr(delivery.CauseStreams) }
		mustDo(t, s, ep)
		rows, _ := s.Get(ep.Route.Origin)
		if a := rows[0].Alternatives[0]; a.State != StateConfirmed || !a.HoldUntil.IsZero() {
			t.Errorf("alternative %+v", a)
		}
		s.Stalled(ep.Route, delivery.Alternative{Port: 443})
		c := &fakeConn{net: n, route: ep.Route, proto: delivery.ProtocolHTTP3}
		n.mu.Lock()
		reused := n.reserve(c, true)
		n.mu.Unlock()
		s.quicDialed(ep.Route, altKey{port: 443}, reused, nil, time.Now(), true)
		reused.Release()
		if st := stateOf(s, ep.Route); st != StateSuspect {
			t.Errorf("an old connection cleared the suspicion: %v", st)
		}
	})
}

func TestStaggerFollowsTheRoundTrip(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{
		0: 250 * time.Millisecond, 10 * time.Millisecond: 100 * time.Millisecond, 200 * time.Millisecond: 300 * time.Millisecond, 5 * time.Second: 2 * time.Second,
	} {
		if got := staggerFor(rtt, 250*time.Millisecond); got != want {
			t.Errorf("rtt %v: stagger %v", rtt, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.cool()
		n.quic = after(200 * time.Millisecond)
		mustDo(t, s, ep) // QUIC's round trip is known now
		n.cool()
		n.quic = blackHole
		start := time.Now()
		if _, tr := mustDo(t, s, ep); tr.Stagger != 300*time.Millisecond || time.Since(start) != 330*time.Millisecond {
			t.Errorf("stagger %v, took %v", tr.Stagger, time.Since(start))
		}
	})
}

func TestSuspectRacesWithoutStagger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.cool()
		s.Stalled(ep.Route, delivery.Alternative{Port: 443})
		n.quic = blackHole
		start := time.Now()
		if _, tr := mustDo(t, s, ep); time.Since(start) != 30*time.Millisecond || tr.State != StateSuspect {
			t.Errorf("took %v in state %v", time.Since(start), tr.State)
		}
	})
}

// burst makes n deliveries at once and says over what they went and how long the
// last one took.
func burst(t *testing.T, s *Selector, ep delivery.Endpoint, n int) (over map[delivery.Protocol]int, took time.Duration) {
	t.Helper()
	over = map[delivery.Protocol]int{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for range n {
		wg.Go(func() {
			_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			over[tr.Protocol]++
		})
	}
	wg.Wait()
	return over, time.Since(start)
}

// answersAfter scripts a receiver that takes d for each request.
func answersAfter(d time.Duration) func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
	return func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		time.Sleep(d)
		return ok200(), nil
	}
}

// TestColdHerdProvesAsManyConnectionsAsItFills: nothing is known of the
// alternative but its advert, so each handshake counts with a proof; those whom
// one connection carries share it.
func TestColdHerdProvesAsManyConnectionsAsItFills(t *testing.T) {
	for herd, dials := range map[int]int{32: 1, 33: 2, 100: 4} {
		synctest.Test(t, func(t *testing.T) {
			s, n := setup(t, Config{})
			n.most, n.quic, n.tcp = 4, after(50*time.Millisecond), tcpAfter(100*time.Millisecond)
			n.serve = answersAfter(time.Second)
			ep := endpoint("h.example")
			advertise(s, ep.Route, `h3=":443"`)
			over, took := burst(t, s, ep, herd)
			if quic, tcp, writes, _ := n.counts(); quic != dials || tcp != 0 || writes != herd || n.proofs != herd {
				t.Errorf("%d QUIC dials, %d over TCP, %d writes, %d asked for a proof", quic, tcp, writes, n.proofs)
			}
			if over[delivery.ProtocolHTTP3] != herd || took != 1050*time.Millisecond {
				t.Errorf("%v, the last after %v", over, took)
			}
		})
	}
}

// TestColdHerdToADeadAlternativeCountsOneFailure: who queued behind the handshake
// leaves for TCP after the stagger, and one verdict is one breakage.
func TestColdHerdToADeadAlternativeCountsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials record[Dial]
		s, n := setup(t, Config{Observer: Observer{Dialed: dials.add}})
		n.most, n.quic, n.tcp = 4, blackHole, tcpAfter(50*time.Millisecond)
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		over, took := burst(t, s, ep, 100)
		if over[delivery.ProtocolHTTP2] != 100 || took != 300*time.Millisecond {
			t.Errorf("%v, the last after %v", over, took)
		}
		time.Sleep(5 * time.Second)
		failures := 0
		for _, d := range dials.get() {
			if d.QUIC {
				failures++
			}
		}
		if _, _, _, held := n.counts(); failures != 1 || held != 0 {
			t.Errorf("%d verdicts, %d slots held", failures, held)
		}
		if st := stateOf(s, ep.Route); st != StateBroken {
			t.Errorf("state %v", st)
		}
	})
}

// TestBurstToAProvenOriginStaysOnHTTP3: as many connections as the burst fills
// are dialled at once, and the next bursts find them warm.
func TestBurstToAProvenOriginStaysOnHTTP3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.cool()
		n.most, n.quic, n.tcp = 4, after(50*time.Millisecond), tcpAfter(100*time.Millisecond)
		n.serve = answersAfter(time.Second)
		before, _, _, _ := n.counts()
		for i, want := range []time.Duration{1050 * time.Millisecond, time.Second, time.Second, time.Second} {
			if over, took := burst(t, s, ep, 100); over[delivery.ProtocolHTTP3] != 100 || took != want {
				t.Errorf("burst %d: %v, the last after %v, want %v", i, over, took, want)
			}
		}
		if quic, tcp, _, _ := n.counts(); quic-before != 4 || tcp != 0 {
			t.Errorf("%d QUIC dials, %d over TCP", quic-before, tcp)
		}
	})
}

// TestBurstBeyondEveryStreamWaitsBrieflyForOne: with all connections full, a
// stream that comes free within the stagger is taken; TCP serves who got none.
func TestBurstBeyondEveryStreamWaitsBrieflyForOne(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers time.Duration
		h3      int
		took    time.Duration
	}{
		{"streams come free in time", 60 * time.Millisecond, 200, 120 * time.Millisecond},
		{"streams come free too late", time.Second, 128, 1150 * time.Millisecond}, // stagger, TCP's dial, its answer
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n, ep := confirmed(t)
				n.most, n.quic, n.tcp = 4, after(10*time.Millisecond), tcpAfter(50*time.Millisecond)
				n.serve = answersAfter(time.Second)
				burst(t, s, ep, 100) // four connections are up now
				n.serve = answersAfter(tt.answers)
				n.mu.Lock()
				n.pool = slices.DeleteFunc(n.pool, func(c *fakeConn) bool { return c.proto != delivery.ProtocolHTTP3 })
				n.mu.Unlock()
				over, took := burst(t, s, ep, 200)
				if over[delivery.ProtocolHTTP3] != tt.h3 || over[delivery.ProtocolHTTP2] != 200-tt.h3 || took != tt.took {
					t.Errorf("%v, the last after %v", over, took)
				}
			})
		})
	}
}

// TestWhoLeavesTheQueueTakesNothing: TCP has won for those who queued; their
// places are given up, and what comes free is there for the next delivery.
func TestWhoLeavesTheQueueTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.most, n.streams, n.tcp = 1, 1, tcpAfter(10*time.Millisecond)
		n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			if c.proto == delivery.ProtocolHTTP3 {
				time.Sleep(time.Minute)
			}
			return ok200(), nil
		}
		var over map[delivery.Protocol]int
		done := make(chan struct{})
		go func() {
			defer close(done)
			over, _ = burst(t, s, ep, 5)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		n.mu.Lock()
		waiting := n.waiting
		n.mu.Unlock()
		if waiting > 1 { // the one who shares is on the way to its verdict
			t.Errorf("%d wait for a stream", waiting)
		}
		<-done
		if over[delivery.ProtocolHTTP3] != 1 || over[delivery.ProtocolHTTP2] != 4 {
			t.Errorf("%v", over)
		}
	})
}

func TestBackgroundHandshakeMakesHTTP3Warm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials record[Dial]
		s, n := setup(t, Config{Observer: Observer{Dialed: dials.add}})
		ep := endpoint("h.example")
		mustDo(t, s, ep) // warm TCP
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = after(100 * time.Millisecond)
		start := time.Now()
		for range 10 {
			if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 || !tr.Reused || time.Since(start) != 0 {
				t.Fatalf("trace %+v after %v", tr, time.Since(start))
			}
		}
		time.Sleep(200 * time.Millisecond)
		quic, _, writes, _ := n.counts()
		seen := dials.get()
		if quic != 1 || writes != 11 || !seen[len(seen)-1].Background {
			t.Errorf("%d QUIC dials, %d writes, dials %+v", quic, writes, seen)
		}
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 {
			t.Errorf("trace %+v", tr)
		}
	})
}

// TestNoPOSTServesAsAProbe: after a breakage, requests go over HTTP/3 only when
// a background handshake has succeeded.
func TestNoPOSTServesAsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic, n.tcp = blackHole, tcpAfter(30*time.Millisecond)
		mustDo(t, s, ep)
		time.Sleep(64 * time.Second)
		n.cool()
		start := time.Now()
		if _, tr := mustDo(t, s, ep); tr.State != StateHalfOpen || time.Since(start) != 30*time.Millisecond {
			t.Errorf("state %v, took %v", tr.State, time.Since(start))
		}
		time.Sleep(4 * time.Second)
		if st := stateOf(s, ep.Route); st != StateBroken {
			t.Errorf("state %v after a failed probe", st)
		}
		time.Sleep(2 * time.Minute)
		n.quic = after(40 * time.Millisecond)
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 {
			t.Errorf("a request was a probe: %+v", tr)
		}
		time.Sleep(time.Second)
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 || !tr.Reused {
			t.Errorf("trace %+v", tr)
		}
	})
}

func TestBothSidesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var races record[Race]
		s, n := setup(t, Config{Observer: Observer{Raced: races.add}})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = blackHole
		n.tcp = func(context.Context, TCPOptions) error { return neverErr(delivery.CauseConnect) }
		_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
		se := asSend(t, err)
		if se.Cause != delivery.CauseConnect || se.Sent != delivery.SentNever || tr.Writes != 0 || len(races.get()) != 1 {
			t.Errorf("%v, races %+v", err, races.get())
		}
		// The network is down, not HTTP/3.
		if st := stateOf(s, ep.Route); st != StateSuspect {
			t.Errorf("state %v", st)
		}
	})
}

func TestDeadlineEndsTheWaitAndTCPButNotTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials record[Dial]
		s, n := setup(t, Config{Observer: Observer{Dialed: dials.add}})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic, n.tcp = blackHole, tcpAfter(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := s.Do(ctx, ep, delivery.ProtocolAuto, request())
		se := asSend(t, err)
		if se.Cause != delivery.CauseTimeout || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(5 * time.Second)
		if got := dials.get(); len(got) != 2 || got[0].QUIC || got[0].Verdict != VerdictCanceled || got[1].Verdict != VerdictTimeout {
			t.Errorf("dials %+v", got)
		}
	})
}

func TestCancelIsAStopOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		n.tcp = tcpAfter(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _, err := s.Do(ctx, endpoint("h.example"), delivery.ProtocolAuto, request())
		if se := asSend(t, err); se.Cause != delivery.CauseShutdown {
			t.Errorf("%v", err)
		}
	})
}

// TestDialsAreBounded: with every slot for background dials taken, deliveries
// use TCP at once.
func TestDialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{MaxDials: 2})
		n.quic = blackHole
		start := time.Now()
		for _, host := range []string{"a.example", "b.example", "c.example"} {
			ep := endpoint(host)
			mustDo(t, s, ep)
			advertise(s, ep.Route, `h3=":443"`)
			mustDo(t, s, ep) // warm TCP, background handshake
		}
		synctest.Wait()
		n.cool()
		ep := endpoint("d.example")
		advertise(s, ep.Route, `h3=":443"`)
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 || time.Since(start) != 0 {
			t.Errorf("trace %+v after %v", tr, time.Since(start))
		}
		if quic, _, _, _ := n.counts(); quic != 2 {
			t.Errorf("%d QUIC dials", quic)
		}
	})
}

func TestStopEndsBackgroundDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = after(8 * time.Second)
		mustDo(t, s, ep)
		start := time.Now()
		if err := s.Stop(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if st := stateOf(s, ep.Route); st != StateAdvertised {
			t.Errorf("our own cancel made the alternative %v", st)
		}
	})
}

// TestStopIsBounded: a dialer that ignores its context cannot hold Stop up.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{t: t}
		s, err := New(Config{DNS: DNSConfig{Disabled: true}}, n)
		if err != nil {
			t.Fatal(err)
		}
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = func(context.Context, delivery.Alternative) error {
			time.Sleep(time.Minute)
			return neverErr(delivery.CauseShutdown)
		}
		mustDo(t, s, ep)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
		time.Sleep(2 * time.Minute)
	})
}

// TestDialThatNeverEndsIsSilence: a peer that drips packets for ever is as good
// as one that says nothing.
func TestDialThatNeverEndsIsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = func(ctx context.Context, _ delivery.Alternative) error {
			<-ctx.Done()
			return neverErr(delivery.CauseTimeout)
		}
		mustDo(t, s, ep)
		time.Sleep(11 * time.Second)
		rows, _ := s.Get(ep.Route.Origin)
		if a := rows[0].Alternatives[0]; a.State != StateBroken || a.Class != delivery.BrokenTimeout {
			t.Errorf("alternative %+v", a)
		}
	})
}
