package engine

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// TestStreamLimitOnTheTimelineAndInTheSelector is the row of the fault matrix that
// needs two requests: the peer grants one stream, and a request hangs on it. The
// next one is delivered on another connection, and no handler runs twice; the one
// that hangs ends as ambiguous and says so. None of it is held against HTTP/3.
func TestStreamLimitOnTheTimelineAndInTheSelector(t *testing.T) {
	for _, p := range []delivery.Protocol{delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *Config) {
				c.Guard.Resolver = names{sequenceHost: {netip.MustParseAddr("127.0.0.1")}}
			})
			peer, err := fault.Start(fault.Config{CA: b.ca, Names: []string{sequenceHost}, HTTP3: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := peer.Close(); err != nil {
					t.Error(err)
				}
			}()
			m := &matrixRow{bundle: b, t: t, row: fault.Row{Protocol: p}, peer: peer, sub: "s"}
			m.subscribeRow("prime", "tcp", 30*time.Second) // HTTP/3 has to be learned of
			m.delivered(m.publishTo("prime"), "prime")
			limit, err := fault.ParseFault("stream-limit:limit=1,times=1")
			if err != nil {
				t.Fatal(err)
			}
			if err := peer.SetFaults(limit); err != nil {
				t.Fatal(err)
			}
			m.subscribeRow("s", p.String(), 3*time.Second)
			m.meetStreamLimit()
		})
	}
}

func (m *matrixRow) meetStreamLimit() {
	hangs := m.publishSized(10)
	m.eventually("the first request hangs", func() bool { return m.peer.Tally().Runs(hangs.ID) == 1 })
	second := m.publishSized(10)
	timeline := m.delivered(second, "s")
	attempt := m.attempted(second, "s")
	if attempt.Number != 1 || attempt.Result.Status != 200 || attempt.Result.Protocol != m.row.Protocol {
		m.t.Errorf("the second: attempt %d, %+v", attempt.Number, attempt.Result)
	}
	if n := len(timeline); timeline[n-1].State != delivery.StateDelivered {
		m.t.Errorf("the second's timeline ends with %v", timeline[n-1].State)
	}
	first := m.attempted(hangs, "s")
	if res := first.Result; res.Status != 0 || res.Sent != delivery.SentAmbiguous || res.Cause != delivery.CauseTimeout {
		m.t.Errorf("the first: %+v", res)
	}
	if first.Outcome.Class != delivery.ClassUnknown {
		m.t.Errorf("the first's class is %v", first.Outcome.Class)
	}
	for _, r := range []Receipt{hangs, second} {
		if n := m.peer.Tally().Runs(r.ID); n != 1 {
			m.t.Errorf("%s: the handler ran %d times in one attempt", r.ID, n)
		}
	}
	if m.row.Protocol != delivery.ProtocolHTTP3 {
		return
	}
	allowed := []protoselect.State{protoselect.StateAdvertised, protoselect.StateConfirmed, protoselect.StateSuspect}
	if got := m.alternative(); !slices.Contains(allowed, got) {
		m.t.Errorf("the alternative is %v, want one of %v", got, allowed)
	}
}
