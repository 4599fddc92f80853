package protoselect

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// firstThen fails the first write and serves the others with 200.
func firstThen(err error) func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
	failed := false
	return func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		if !failed {
			failed = true
			return nil, err
		}
		return ok200(), nil
	}
}

// TestSecondWriteNeedsProof is the table of "was it sent?": what allows a second
// write, and over what.
func TestSecondWriteNeedsProof(t *testing.T) {
	tests := []struct {
		name   string
		h3     bool // the first write goes over warm HTTP/3, else warm TCP
		policy delivery.ProtocolPolicy
		err    error
		writes int
		resend ResendReason
		over   delivery.Protocol // of the last write
	}{
		{name: "never sent over HTTP/3", h3: true, err: neverErr(delivery.CauseReset), writes: 2, resend: ResendNever, over: delivery.ProtocolHTTP2},
		{name: "never sent over TCP", err: neverErr(delivery.CauseReset), writes: 2, resend: ResendNever, over: delivery.ProtocolHTTP2},
		{name: "refused over HTTP/3", h3: true, err: refusedErr(), writes: 2, resend: ResendRefused, over: delivery.ProtocolHTTP2},
		{name: "refused over TCP", err: refusedErr(), writes: 2, resend: ResendRefused, over: delivery.ProtocolHTTP2},
		{name: "no stream in time", h3: true, err: neverErr(delivery.CauseStreams), writes: 2, resend: ResendNever, over: delivery.ProtocolHTTP2},
		{name: "ambiguous over HTTP/3", h3: true, err: ambiguousErr(delivery.BrokenNot), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "death over HTTP/3", h3: true, err: ambiguousErr(delivery.BrokenAfterDeath), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "ambiguous over TCP", err: ambiguousErr(delivery.BrokenNot), writes: 1, over: delivery.ProtocolHTTP2},
		{name: "unclassified", h3: true, err: errors.New("what is this"), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "lost lease", h3: true, err: neverErr(delivery.CauseShutdown), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "our own payload", err: neverErr(delivery.CauseLocal), writes: 1, over: delivery.ProtocolHTTP2},
		{name: "address policy", h3: true, err: neverErr(delivery.CausePolicy), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "HTTP/3 demanded, never sent", h3: true, policy: delivery.ProtocolH3, err: neverErr(delivery.CauseReset), writes: 2, resend: ResendNever, over: delivery.ProtocolHTTP3},
		{name: "HTTP/3 demanded, ambiguous", h3: true, policy: delivery.ProtocolH3, err: ambiguousErr(delivery.BrokenNot), writes: 1, over: delivery.ProtocolHTTP3},
		{name: "HTTP/1.1 demanded, never sent", policy: delivery.ProtocolH1, err: neverErr(delivery.CauseReset), writes: 2, resend: ResendNever, over: delivery.ProtocolHTTP1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := setup(t, Config{})
				ep := endpoint("h.example")
				if tt.h3 {
					advertise(s, ep.Route, `h3=":443"`)
				}
				if _, _, err := s.Do(t.Context(), ep, tt.policy, request()); err != nil {
					t.Fatal(err)
				}
				n.writes = nil
				n.serve = firstThen(tt.err)
				_, tr, err := s.Do(t.Context(), ep, tt.policy, request())
				if len(n.writes) != tt.writes || tr.Writes != tt.writes || tr.Resend != tt.resend || tr.Protocol != tt.over {
					t.Errorf("%d writes, trace %+v", len(n.writes), tr)
				}
				if (err == nil) != (tt.writes == 2) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestStaleTCPConnectionIsReplacedByAFreshOne: all warm connections of a server
// that restarted are dead; the second write must not find the next dead one.
func TestStaleTCPConnectionIsReplacedByAFreshOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		var fresh bool
		n.tcp = func(_ context.Context, opts TCPOptions) error {
			fresh = opts.Fresh
			return nil
		}
		mustDo(t, s, ep)
		old := n.pool[0]
		n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			if c == old {
				return nil, neverErr(delivery.CauseReset)
			}
			return ok200(), nil
		}
		if _, tr := mustDo(t, s, ep); !fresh || tr.Reused || n.tcpDials != 2 {
			t.Errorf("fresh %v, %d dials, trace %+v", fresh, n.tcpDials, tr)
		}
	})
}

// TestRefusedOverTCPMayMoveToWarmHTTP3: the other protocol is there already.
func TestRefusedOverTCPMayMoveToWarmHTTP3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.streams = 1
		hold := make(chan struct{})
		n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			if c.proto == delivery.ProtocolHTTP3 {
				<-hold
			}
			return ok200(), nil
		}
		n.quic = func(context.Context, delivery.Alternative) error { return neverErr(delivery.CauseStreams) }
		go func() { // takes the only stream
			if _, _, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			if c.proto != delivery.ProtocolHTTP3 {
				close(hold) // the stream is free again
				synctest.Wait()
				return nil, refusedErr()
			}
			return ok200(), nil
		}
		_, tr := mustDo(t, s, ep)
		if tr.Protocol != delivery.ProtocolHTTP3 || tr.Writes != 2 || !tr.Reused {
			t.Errorf("trace %+v", tr)
		}
		if st := stateOf(s, ep.Route); st != StateConfirmed {
			t.Errorf("a busy connection made the alternative %v", st)
		}
	})
}

func TestNoSecondWriteAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.serve = func(ctx context.Context, _ *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			<-ctx.Done()
			return nil, neverErr(delivery.CauseStreams)
		}
		if _, tr, err := s.Do(ctx, ep, delivery.ProtocolAuto, request()); err == nil || tr.Writes != 1 || n.tcpDials != 0 {
			t.Errorf("%v, %d TCP dials, trace %+v", err, n.tcpDials, tr)
		}
	})
}

func TestSecondFailureTellsBothStories(t *testing.T) {
	tests := []struct {
		name          string
		first, second error
		dial          error
		sent          delivery.Sent
		writes        int
	}{
		{name: "refused twice", first: refusedErr(), second: refusedErr(), sent: delivery.SentRefused, writes: 2},
		{name: "refused, then ambiguous", first: refusedErr(), second: ambiguousErr(delivery.BrokenNot), sent: delivery.SentAmbiguous, writes: 2},
		{name: "refused, then never sent", first: refusedErr(), second: neverErr(delivery.CauseReset), sent: delivery.SentRefused, writes: 2},
		{name: "never sent, then no connection", first: neverErr(delivery.CauseReset), dial: neverErr(delivery.CauseConnect), sent: delivery.SentNever, writes: 1},
		{name: "refused, then no connection", first: refusedErr(), dial: neverErr(delivery.CauseConnect), sent: delivery.SentRefused, writes: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n, ep := confirmed(t)
				n.tcp = func(context.Context, TCPOptions) error { return tt.dial }
				n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
					if c.proto == delivery.ProtocolHTTP3 {
						return nil, tt.first
					}
					return nil, tt.second
				}
				_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
				se := asSend(t, err)
				if se.Sent != tt.sent || tr.Writes != tt.writes || !strings.Contains(se.Detail, "before that: ") {
					t.Errorf("%v %q, %d writes", se.Sent, se.Detail, tr.Writes)
				}
			})
		})
	}
}

func TestMisdirectedAnswerStandsWhenTCPIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.tcp = func(context.Context, TCPOptions) error { return neverErr(delivery.CauseConnect) }
		n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
			return &delivery.Response{Status: http.StatusMisdirectedRequest, Header: http.Header{}}, nil
		}
		if resp, tr := mustDo(t, s, ep); resp.Status != http.StatusMisdirectedRequest || tr.Writes != 1 {
			t.Errorf("%d, trace %+v", resp.Status, tr)
		}
	})
}

// TestLiarIsNotTrustedAgain: a peer that refuses a request as unprocessed after
// it had begun its answer gets no second write any more, and what it refuses
// later is ambiguous to everybody.
func TestLiarIsNotTrustedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var liars int
		s, n := setup(t, Config{Observer: Observer{Lied: func(delivery.Route) { liars++ }}})
		ep := endpoint("h.example")
		n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
			r := ok200()
			r.BodyErr = refusedErr()
			return r, nil
		}
		mustDo(t, s, ep)
		n.serve = firstThen(refusedErr())
		_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
		if se := asSend(t, err); se.Sent != delivery.SentAmbiguous || tr.Writes != 1 || liars != 1 {
			t.Errorf("%v, trace %+v, %d liars", se.Sent, tr, liars)
		}
		rows, _ := s.Get(ep.Route.Origin)
		if r := rows[0]; !r.Distrusted || r.Lies != 1 || r.Refusals != 1 {
			t.Errorf("row %+v", r)
		}
		// An operator who knows better forgets it.
		s.Forget(ep.Route.Origin)
		n.serve = firstThen(refusedErr())
		if _, tr := mustDo(t, s, ep); tr.Writes != 2 {
			t.Errorf("trace %+v", tr)
		}
	})
}

func TestDemandForHTTP3DoesNotFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		n.quic = blackHole
		_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolH3, request())
		if se := asSend(t, err); se.Sent != delivery.SentNever || n.tcpDials != 0 || tr.Writes != 0 {
			t.Errorf("%v, %d TCP dials", err, n.tcpDials)
		}
		n.quic = nil
		if err := s.Pin(ep.Route.Origin, PinH3, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, tr = mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 || n.altUsed[0] != "" {
			t.Errorf("trace %+v, Alt-Used %q for a service that nobody advertised", tr, n.altUsed[0])
		}
	})
}

// TestAltUsedNamesTheAlternative is RFC 7838 §5; over TCP there is none.
func TestAltUsedNamesTheAlternative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
			if c.proto == delivery.ProtocolHTTP3 {
				return nil, refusedErr()
			}
			return ok200(), nil
		}
		n.altUsed = nil
		mustDo(t, s, ep)
		if len(n.altUsed) != 2 || n.altUsed[0] != "h.example" || n.altUsed[1] != "" {
			t.Errorf("Alt-Used %q", n.altUsed)
		}
	})
	for k, want := range map[altKey]string{
		{port: 443}: "h.example", {port: 8443}: "h.example:8443", {host: "o.example", port: 443}: "o.example",
	} {
		if got := k.altUsed(endpoint("h.example").Route); got != want {
			t.Errorf("%v: %q", k, got)
		}
	}
	if got := (altKey{port: 443}).altUsed(endpoint("2001:db8::1").Route); got != "[2001:db8::1]" {
		t.Errorf("IPv6 literal: %q", got)
	}
}

func TestTraceTellsHowItWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = after(60 * time.Millisecond)
		_, tr := mustDo(t, s, ep)
		var r delivery.Result
		tr.Fill(&r)
		if r.Protocol != delivery.ProtocolHTTP3 || r.Reused || r.Phases.QUIC != 60*time.Millisecond || r.Remote != "192.0.2.1:443" ||
			r.RaceLoser != "tcp:not_started" || tr.Alternative != "h.example:443" || tr.State != StateAdvertised {
			t.Errorf("result %+v of %+v", r, tr)
		}
		_, tr = mustDo(t, s, ep)
		if !tr.Reused || tr.QUIC != 0 || tr.RaceLoser() != "" || tr.Remote == "" {
			t.Errorf("trace %+v", tr)
		}
	})
}

func TestStoppedSelectorRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		for range 2 {
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := s.Do(t.Context(), endpoint("h.example"), delivery.ProtocolAuto, request())
		if se := asSend(t, err); se.Cause != delivery.CauseShutdown || se.Sent != delivery.SentNever || n.tcpDials != 0 {
			t.Errorf("%v", err)
		}
	})
}
