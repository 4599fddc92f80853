package protoselect

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestDeadUDPCostsOneStagger is case H11.
func TestDeadUDPCostsOneStagger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		n.quic, n.tcp = blackHole, tcpAfter(40*time.Millisecond)
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)

		start := time.Now()
		_, tr := mustDo(t, s, ep)
		if took := time.Since(start); took != 250*time.Millisecond+40*time.Millisecond {
			t.Errorf("delivery took %v, want stagger + TCP handshake", took)
		}
		if tr.Protocol != delivery.ProtocolHTTP2 || tr.RaceLoser() != "h3:pending" {
			t.Errorf("went over %v with loser %q", tr.Protocol, tr.RaceLoser())
		}
		time.Sleep(3 * time.Second)
		n.cool()
		start = time.Now()
		_, tr = mustDo(t, s, ep)
		if took := time.Since(start); took != 40*time.Millisecond || tr.State != StateBroken {
			t.Errorf("next delivery took %v in state %v, want the TCP handshake alone", took, tr.State)
		}
		quic, tcp, writes, _ := n.counts()
		if quic != 1 || tcp != 2 || writes != 2 {
			t.Errorf("%d QUIC dials, %d TCP dials, %d writes", quic, tcp, writes)
		}
	})
}
