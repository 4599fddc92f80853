package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
	"github.com/dispatcher-engine/dispatcher/transport"
)

const (
	originHost = "origin.test"
	// patience is how long a request may take that something other than its
	// deadline ends, deadline that of the others.
	patience = 10 * time.Second
	deadline = time.Second
	// handshake is what a dial may take that is known to fail. The others get
	// the product's own limits: the machine may be busy.
	handshake = 2 * time.Second
)

// openGuard sends every name to loopback.
type openGuard struct{}

func (openGuard) Route(_ context.Context, _ string, port uint16) (netguard.Route, error) {
	return netguard.Route{Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}}, nil
}

func (openGuard) DialControl(context.Context, string, string, syscall.RawConn) error { return nil }
func (openGuard) CheckUDP(netip.AddrPort) error                                      { return nil }

// matrixBench is a transport and the peer that it meets.
type matrixBench struct {
	t       *testing.T
	tr      *transport.Transport
	peer    *fault.Server
	ep      delivery.Endpoint
	refused atomic.Int64
	stalled atomic.Int64
}

func newMatrixBench(t *testing.T, ca *testnet.CA, dialLimit time.Duration, faults ...fault.Fault) *matrixBench {
	t.Helper()
	peer, err := fault.Start(fault.Config{CA: ca, Names: []string{originHost}, HTTP3: true, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	b := &matrixBench{t: t, peer: peer}
	b.ep = endpointAt(peer.Port())
	b.tr, err = transport.New(transport.Config{
		Guard: openGuard{}, RootCAs: ca.Pool(), DialTimeout: dialLimit, QUICHandshakeTimeout: dialLimit,
		Observer: transport.Observer{
			Refused: func(delivery.Route, delivery.Protocol) { b.refused.Add(1) },
			Stalled: func(delivery.Route, delivery.Alternative) { b.stalled.Add(1) },
		},
	})
	if err != nil {
		t.Fatal(errors.Join(err, peer.Close()))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.tr.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func endpointAt(port int) delivery.Endpoint {
	return delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: originHost, Port: uint16(port)}}}
}

func (b *matrixBench) alternative() delivery.Alternative {
	return delivery.Alternative{Port: b.ep.Route.Origin.Port}
}

func (b *matrixBench) warm(p delivery.Protocol) (*transport.Conn, bool) {
	if p == delivery.ProtocolHTTP3 {
		return b.tr.Warm(b.ep, transport.Want{HTTP3: true, Alternative: b.alternative()})
	}
	return b.tr.Warm(b.ep, transport.Want{TCP: transport.TCPOptions{Protocol: p}})
}

// connect returns a slot, on a warm connection if there is one.
func (b *matrixBench) connect(p delivery.Protocol) (*transport.Conn, error) {
	if c, ok := b.warm(p); ok {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if p == delivery.ProtocolHTTP3 {
		return b.tr.DialQUIC(ctx, b.ep, b.alternative())
	}
	return b.tr.DialTCP(ctx, b.ep, transport.TCPOptions{Protocol: p})
}

// send writes one POST on a connection.
func (b *matrixBench) send(c *transport.Conn, id string, size int, limit time.Duration) (*delivery.Response, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	return c.RoundTrip(ctx, &delivery.Request{
		Path: "/hook", Host: b.ep.Route.Origin.Authority(), Length: int64(size), Body: bytes.Repeat([]byte{'x'}, size),
		Headers: []delivery.Header{{Name: "Webhook-Id", Value: id}, {Name: "Webhook-Attempt", Value: "1"}, {Name: "Content-Type", Value: "application/json"}},
	})
}

// healthy sends a POST that has to succeed.
func (b *matrixBench) healthy(p delivery.Protocol, id string) {
	b.t.Helper()
	c, err := b.connect(p)
	if err != nil {
		b.t.Fatalf("%s: connect: %v", id, err)
	}
	resp, err := b.send(c, id, 100, patience)
	if err != nil || resp.Status != 200 || b.peer.Tally().Runs(id) != 1 {
		b.t.Fatalf("%s: %+v, %v; the handler ran %d times", id, resp, err, b.peer.Tally().Runs(id))
	}
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

// TestFaultMatrix sends one POST into every fault of the list, over every
// protocol that has it, and holds what comes of it against the design: how often
// the handler ran, what is claimed about the request, and what becomes of the
// connection. Afterwards the receiver is healthy, and the next POST has to
// succeed at once.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	// The rows wait more than they work, so there are more at a time than the
	// machine has processors, which is what t.Parallel goes by.
	const workers = 12
	rows := make(chan fault.Row)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for row := range rows {
				t.Run(row.String(), func(t *testing.T) { runRow(t, ca, row) })
			}
		})
	}
	for _, row := range fault.Matrix() {
		if row.Fault.Kind().Name != "stream-limit" { // needs two requests: TestStreamLimitIsNeverSent
			rows <- row
		}
	}
	close(rows)
	wg.Wait()
}

func runRow(t *testing.T, ca *testnet.CA, row fault.Row) {
	limit := patience
	if row.Fault.Kind().Name == "black-hole" || row.Fault.Kind().Standing {
		limit = handshake
	}
	b := newMatrixBench(t, ca, limit, row.Fault)
	for i := range row.Fault.Warmup() {
		b.healthy(row.Protocol, fmt.Sprintf("before-%d", i))
	}
	b.meet(row)
	b.judgePool(row)
	b.recover(row)
}

// meet sends the POST that meets the fault.
func (b *matrixBench) meet(row fault.Row) {
	b.t.Helper()
	const id = "subject"
	want := row.Want
	c, err := b.connect(row.Protocol)
	if err != nil {
		b.judgeFailure(row, err, id)
		return
	}
	if want.Pool == fault.FateNone {
		c.Release()
		b.t.Fatal("a connection came up")
	}
	limit := patience
	if want.Deadline {
		limit = deadline
	}
	resp, err := b.send(c, id, max(want.Body, 100), limit)
	if err != nil {
		b.judgeFailure(row, err, id)
		return
	}
	if resp.Status != want.Status {
		b.t.Fatalf("answered %d, want %d", resp.Status, want.Status)
	}
	if cut := resp.Truncated || resp.BodyErr != nil; cut != want.Cut || len(resp.Body) > 16<<10 {
		b.t.Errorf("%d bytes of the body, truncated: %v, error: %v", len(resp.Body), resp.Truncated, resp.BodyErr)
	}
	b.judgeRuns(row, id)
}

func (b *matrixBench) judgeFailure(row fault.Row, err error, id string) {
	b.t.Helper()
	want := row.Want
	se, ok := errors.AsType[*delivery.SendError](err)
	if !ok {
		b.t.Fatalf("the error is %T: %v", err, err)
	}
	if want.Status != 0 {
		if !want.Overtakes {
			b.t.Fatalf("failed with %v, want an answer with %d", se, want.Status)
		}
		want.Sent = want.Overtaken
	}
	if se.Sent != want.Sent && (!want.Early || se.Sent != delivery.SentNever) {
		b.t.Errorf("sent is %v, want %v: %v", se.Sent, want.Sent, se)
	}
	if row.Protocol == delivery.ProtocolHTTP3 && !want.BrokenOpen && se.Broken != want.Broken {
		b.t.Errorf("broken is %v, want %v: %v", se.Broken, want.Broken, se)
	}
	if refused := b.refused.Load() == 1; refused != (se.Sent == delivery.SentRefused) {
		b.t.Errorf("refusal observed: %v, of %v", refused, se)
	}
	b.judgeRuns(row, id)
}

// judgeRuns: the transport writes a request once, so it arrives at most once.
func (b *matrixBench) judgeRuns(row fault.Row, id string) {
	b.t.Helper()
	tally := b.peer.Tally()
	if n := tally.Arrived(id); n > 1 {
		b.t.Errorf("the request arrived %d times", n)
	}
	if row.Want.Early {
		return
	}
	if n := tally.Runs(id); n != row.Want.Runs {
		b.t.Errorf("the handler ran %d times, want %d", n, row.Want.Runs)
	}
	if row.Want.Lie {
		soon(b.t, "the peer lied", func() bool { return tally.Lies(id) > 0 })
	} else if tally.Lies(id) > 0 {
		b.t.Error("the peer lied")
	}
}

func (b *matrixBench) judgePool(row fault.Row) {
	b.t.Helper()
	isWarm := func() bool {
		c, ok := b.warm(row.Protocol)
		if ok {
			c.Release()
		}
		return ok
	}
	switch row.Want.Pool {
	case fault.FateKeep:
		if !isWarm() && b.stalled.Load() == 0 { // by a machine that is too busy to be believed
			b.t.Error("the connection was given up")
		}
	case fault.FateGone, fault.FateNone:
		soon(b.t, "the connection is given up", func() bool { return !isWarm() })
	}
}

// exposeDeath sends the POST that finds a path dead which seemed alive. Only
// HTTP/3 can be told so; a request that was on its way is lost either way.
func (b *matrixBench) exposeDeath(row fault.Row) {
	b.t.Helper()
	if row.Want.Status != 0 {
		soon(b.t, "the path has died", func() bool { return b.peer.Tally().Fired(row.Fault.Kind().Name) > 0 })
	}
	for i := 0; ; i++ {
		c, ok := b.warm(row.Protocol)
		if !ok {
			return
		}
		if i == 2 {
			c.Release()
			b.t.Fatal("a dead path took two requests and is still warm")
		}
		id := fmt.Sprintf("lost-%d", i)
		_, err := b.send(c, id, 100, deadline)
		se, isSend := errors.AsType[*delivery.SendError](err)
		if !isSend || se.Sent != delivery.SentAmbiguous && se.Sent != delivery.SentNever || b.peer.Tally().Runs(id) != 0 {
			b.t.Fatalf("over a dead path: %v; the handler ran %d times", err, b.peer.Tally().Runs(id))
		}
	}
}

// recover makes the peer healthy and sends another POST. What holds from start
// to end is walked around.
func (b *matrixBench) recover(row fault.Row) {
	b.t.Helper()
	p := row.Protocol
	switch {
	case !row.Fault.Kind().Standing:
		if err := b.peer.SetFaults(); err != nil {
			b.t.Fatal(err)
		}
	case p == delivery.ProtocolHTTP3:
		p = delivery.ProtocolHTTP2
	default:
		p = delivery.ProtocolHTTP3
	}
	if row.Want.Latent {
		b.exposeDeath(row)
	}
	b.healthy(p, "next")
	connections := b.peer.Tally().Counts().TCPConnections
	if p == delivery.ProtocolHTTP3 {
		connections = b.peer.Tally().Counts().QUICConnections
	}
	switch row.Want.Pool {
	case fault.FateKeep:
		if connections != 1 && b.stalled.Load() == 0 {
			b.t.Errorf("%d connections, want 1", connections)
		}
	case fault.FateGone:
		if connections < 2 && !row.Want.Early {
			b.t.Errorf("%d connections, want a second one", connections)
		}
	}
	soon(b.t, "all slots are free", func() bool { return b.tr.Stats().InFlight == 0 })
}

// TestStreamLimitIsNeverSent: what waits for a stream until its deadline has not
// been sent. HTTP/2 shows its limit, so there the second goes elsewhere.
func TestStreamLimitIsNeverSent(t *testing.T) {
	t.Parallel()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	limit, err := fault.ParseFault("stream-limit:limit=1,times=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []delivery.Protocol{delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			b := newMatrixBench(t, ca, patience, limit)
			first, err := b.connect(p)
			if err != nil {
				t.Fatal(err)
			}
			ctx, giveUp := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = first.RoundTrip(ctx, &delivery.Request{
					Path: "/hook", Host: b.ep.Route.Origin.Authority(), Headers: []delivery.Header{{Name: "Webhook-Id", Value: "hangs"}},
				})
			}()
			soon(t, "the first request hangs", func() bool { return b.peer.Tally().Runs("hangs") == 1 })
			if p == delivery.ProtocolHTTP2 {
				b.elsewhere(p)
				if n := b.peer.Tally().Counts().TCPConnections; n != 2 {
					t.Errorf("%d connections, want 2", n)
				}
			} else {
				second, err := b.connect(p)
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.send(second, "second", 100, deadline)
				se, ok := errors.AsType[*delivery.SendError](err)
				if !ok || se.Sent != delivery.SentNever || se.Cause != delivery.CauseStreams || b.peer.Tally().Arrived("second") != 0 {
					t.Errorf("got %v; the request arrived %d times", err, b.peer.Tally().Arrived("second"))
				}
			}
			giveUp()
			<-ended
			if err := b.peer.SetFaults(); err != nil { // its reset may be behind the next request
				t.Fatal(err)
			}
			b.healthy(p, "third")
		})
	}
}

// elsewhere sends a POST while the warm connection is full. Until the peer's
// limit has been read, requests above it are refused, which is a proof.
func (b *matrixBench) elsewhere(p delivery.Protocol) {
	b.t.Helper()
	for i := range 10 {
		c, err := b.connect(p)
		if err != nil {
			b.t.Fatal(err)
		}
		resp, err := b.send(c, fmt.Sprintf("second-%d", i), 100, patience)
		if err == nil && resp.Status == 200 {
			return
		}
		if se, ok := errors.AsType[*delivery.SendError](err); !ok || se.Sent != delivery.SentRefused {
			b.t.Fatalf("got %+v, %v", resp, err)
		}
	}
	b.t.Error("refused ten times")
}

// onRelay puts a path between the bench and its peer that can be told to die.
func (b *matrixBench) onRelay() *fault.Relay {
	b.t.Helper()
	relay, err := fault.NewRelay(b.peer.Addr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := relay.Close(); err != nil {
			b.t.Error(err)
		}
	})
	b.ep = endpointAt(relay.Port())
	return relay
}

// quiet waits until nothing is on its way.
func quiet(t *testing.T, relay *fault.Relay) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last, _ := relay.Datagrams()
	for same := 0; same < 3; {
		<-tick.C
		now, _ := relay.Datagrams()
		if same++; now != last {
			same = 0
		}
		last = now
	}
}

// TestDeathAfterHandshakeIsSeenByPackets: the handshake and a request went well,
// then the path died. The next request is lost, and says why.
func TestDeathAfterHandshakeIsSeenByPackets(t *testing.T) {
	t.Parallel()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	b := newMatrixBench(t, ca, patience)
	relay := b.onRelay()
	b.healthy(delivery.ProtocolHTTP3, "first")
	quiet(t, relay)
	relay.DropUDP(true)
	c, err := b.connect(delivery.ProtocolHTTP3)
	if err != nil || !c.Reused() {
		t.Fatalf("reused: %v, %v", c, err)
	}
	// Three probe timeouts are three seconds at most, on a machine that measures
	// slow round trips because it is busy.
	_, err = b.send(c, "lost", 100, 5*time.Second)
	se, ok := errors.AsType[*delivery.SendError](err)
	if !ok || se.Sent != delivery.SentAmbiguous || se.Broken != delivery.BrokenAfterDeath || b.stalled.Load() != 1 {
		t.Errorf("got %v; stalls: %d", err, b.stalled.Load())
	}
	if _, ok := b.warm(delivery.ProtocolHTTP3); ok {
		t.Error("the dead connection is warm")
	}
	b.healthy(delivery.ProtocolHTTP2, "over TCP")
	relay.DropUDP(false)
	b.healthy(delivery.ProtocolHTTP3, "the path is back")
}

// TestPacketsTooLargeForThePathAreAmbiguous: the path swallows what is large, as
// after a change of route, and lets the rest pass.
func TestPacketsTooLargeForThePathAreAmbiguous(t *testing.T) {
	t.Parallel()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	b := newMatrixBench(t, ca, patience)
	relay := b.onRelay()
	b.healthy(delivery.ProtocolHTTP3, "first")
	relay.LimitUDP(1000)
	c, err := b.connect(delivery.ProtocolHTTP3)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.send(c, "large", 64<<10, time.Second)
	se, ok := errors.AsType[*delivery.SendError](err)
	if !ok || se.Sent != delivery.SentAmbiguous || b.peer.Tally().Runs("large") != 0 {
		t.Errorf("got %v; the handler ran %d times", err, b.peer.Tally().Runs("large"))
	}
	relay.LimitUDP(0)
	b.healthy(delivery.ProtocolHTTP3, "next")
}
