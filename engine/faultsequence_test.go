package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// lane is a peer with a transport that sends to it. Sequences run on it one
// after the other, each with a selector that knows nothing yet.
type lane struct {
	t        *testing.T
	peer     *fault.Server
	tr       *transport.Transport
	ep       delivery.Endpoint
	selector atomic.Pointer[protoselect.Selector]
	rows     []fault.Row
	totals   *totals
	attempts []attempted
	notes    notes
}

// notes are the outcomes of single writes, for the story of a failure.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// recorder is the engine's own dialer with notes.
type recorder struct {
	dialer

	notes *notes
}

func (r *recorder) Warm(ep delivery.Endpoint, want protoselect.Want) (protoselect.Conn, bool) {
	c, ok := r.dialer.Warm(ep, want)
	return r.record(c), ok
}

func (r *recorder) DialTCP(ctx context.Context, ep delivery.Endpoint, opts protoselect.TCPOptions) (protoselect.Conn, error) {
	c, err := r.dialer.DialTCP(ctx, ep, opts)
	return r.record(c), err
}

func (r *recorder) ProveQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (protoselect.Conn, error) {
	c, err := r.dialer.ProveQUIC(ctx, ep, alt)
	return r.record(c), err
}

func (r *recorder) DialQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (protoselect.Conn, error) {
	c, err := r.dialer.DialQUIC(ctx, ep, alt)
	return r.record(c), err
}

func (r *recorder) record(c protoselect.Conn) protoselect.Conn {
	if c == nil {
		return nil
	}
	return &recorded{Conn: c, notes: r.notes}
}

// recorded notes what became of its write.
type recorded struct {
	protoselect.Conn

	notes *notes
}

func (c *recorded) RoundTrip(ctx context.Context, req *delivery.Request) (*delivery.Response, error) {
	resp, err := c.Conn.RoundTrip(ctx, req)
	line := fmt.Sprintf("%v: %v", c.Protocol(), err)
	if err == nil {
		line = fmt.Sprintf("%v: %d", c.Protocol(), resp.Status)
	}
	c.notes.add(line)
	return resp, err
}

// attempted is what was claimed about a request.
type attempted struct {
	id     string
	sent   delivery.Sent
	writes int
	story  string // of an error's message
}

// totals is what all sequences came to.
type totals struct {
	mu                               sync.Mutex
	requests, writes, resends        int
	overHTTP1, overHTTP2, overHTTP3  int
	faults, liesBelieved, ran        int
	answers                          int
	never, refused, ambiguous, other int
	strays                           int // second answers taken for a first
}

func (s *totals) strayed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strays++
}

// toLoopback sends every name there.
type toLoopback struct{}

func (toLoopback) Route(_ context.Context, _ string, port uint16) (netguard.Route, error) {
	return netguard.Route{Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}}, nil
}

func (toLoopback) DialControl(context.Context, string, string, syscall.RawConn) error { return nil }
func (toLoopback) CheckUDP(netip.AddrPort) error                                      { return nil }

const sequenceHost = "origin.test"

func newLane(t *testing.T, ca *testnet.CA, rows []fault.Row, sums *totals) (*lane, func()) {
	t.Helper()
	peer, err := fault.Start(fault.Config{CA: ca, Names: []string{sequenceHost}, HTTP3: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{t: t, peer: peer, rows: rows, totals: sums}
	l.ep.Route.Origin = delivery.Origin{Scheme: "https", Host: sequenceHost, Port: uint16(peer.Port())}
	l.tr, err = transport.New(transport.Config{
		Guard: toLoopback{}, RootCAs: ca.Pool(), DialTimeout: time.Second, QUICHandshakeTimeout: 500 * time.Millisecond,
		Observer: transport.Observer{Stalled: func(r delivery.Route, alt delivery.Alternative) {
			if s := l.selector.Load(); s != nil {
				s.Stalled(r, alt)
			}
		}},
	})
	if err != nil {
		t.Fatal(errors.Join(err, peer.Close()))
	}
	return l, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(l.tr.Close(ctx), peer.Close()); err != nil {
			t.Error(err)
		}
		l.judge() // now nothing can arrive any more
	}
}

// sequence sends a few requests into a few faults.
func (l *lane) sequence(number int) {
	rng := rand.New(rand.NewPCG(uint64(number), 1))
	s, err := protoselect.New(protoselect.Config{
		DNS: protoselect.DNSConfig{Disabled: true}, Stagger: 20 * time.Millisecond,
	}, &recorder{dialer: dialer{l.tr}, notes: &l.notes})
	if err != nil {
		l.t.Error(err)
		return
	}
	l.selector.Store(s)
	defer func() {
		l.selector.Store(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			l.t.Error(err)
		}
	}()
	var script []fault.Fault
	for range 1 + rng.IntN(3) {
		script = append(script, l.pick(rng))
	}
	l.arm()
	for i := range rng.IntN(3) { // how much it has learned of the origin
		l.send(s, fmt.Sprintf("%d-prime-%d", number, i), nil, delivery.ProtocolAuto, time.Second)
	}
	l.arm(script...)
	policies := []delivery.ProtocolPolicy{
		delivery.ProtocolAuto, delivery.ProtocolAuto, delivery.ProtocolAuto, delivery.ProtocolH3, delivery.ProtocolTCP,
		delivery.ProtocolH2, delivery.ProtocolH1,
	}
	for i := range 1 + rng.IntN(3) {
		l.send(s, fmt.Sprintf("%d-%d", number, i), script, policies[rng.IntN(len(policies))], faultDeadline)
	}
}

func (l *lane) arm(faults ...fault.Fault) {
	if err := l.peer.SetFaults(faults...); err != nil {
		l.t.Error(err)
	}
}

// pick takes a fault of the matrix and a trigger.
func (l *lane) pick(rng *rand.Rand) fault.Fault {
	spec := l.rows[rng.IntN(len(l.rows))].Fault.String()
	if !strings.Contains(spec, ":") {
		spec += ":"
	}
	add := func(key string, value any) {
		if !strings.Contains(spec, key+"=") {
			spec += fmt.Sprintf(",%s=%v", key, value)
		}
	}
	switch rng.IntN(4) {
	case 0:
		add("times", 1)
	case 1:
		add("every", 2)
	case 2:
		add("p", 0.5)
		add("seed", rng.IntN(1000))
	}
	f, err := fault.ParseFault(spec)
	if err != nil {
		l.t.Error(err)
	}
	return f
}

// send makes one attempt and judges it.
func (l *lane) send(s *protoselect.Selector, id string, script []fault.Fault, policy delivery.ProtocolPolicy, limit time.Duration) {
	ctx, cancel := context.WithTimeout(l.t.Context(), limit)
	defer cancel()
	body := []byte(`{"id":"` + id + `"}`)
	resp, trace, err := s.Do(ctx, l.ep, policy, &delivery.Request{
		Path: "/hook", Host: l.ep.Route.Origin.Authority(), Body: body, Length: int64(len(body)),
		Headers: []delivery.Header{{Name: "Webhook-Id", Value: id}, {Name: "Webhook-Attempt", Value: "1"}},
	})
	did := attempted{id: id, sent: delivery.SentProcessed, writes: trace.Writes}
	if err != nil {
		se, ok := errors.AsType[*delivery.SendError](err)
		if !ok {
			l.t.Errorf("%s: the error is %T: %v", id, err, err)
			return
		}
		did.sent = se.Sent
	} else if resp.Header.Get("X-Second") != "" {
		// An answer that nobody had asked for, and that came in the microseconds
		// after the connection was looked at. HTTP/1.1 has no mark by which it could
		// be told from the answer to the request that was written meanwhile.
		l.totals.strayed()
	} else if resp.Status == http.StatusOK && l.peer.Tally().Runs(id) == 0 {
		l.t.Errorf("%s: answered, but the handler did not run", id)
	}
	did.story = fmt.Sprintf("%v, %v: %q", script, policy, l.notes.take())
	l.attempts = append(l.attempts, did)
	l.totals.add(trace, did.sent, l.peer.Tally().Lies(id))
}

// judge holds the promise for every request: a handler runs once, unless the
// peer ran it and then said that it had not; then once more at most. And what is
// called not processed was not, unless the peer lied.
func (l *lane) judge() {
	ran := 0
	for _, did := range l.attempts {
		tally := l.peer.Tally()
		arrived, runs, lies := tally.Arrived(did.id), tally.Runs(did.id), tally.Lies(did.id)
		ran += runs
		switch {
		case did.writes > 2 || arrived > did.writes:
			l.t.Errorf("%s: written %d times, arrived %d times: %s", did.id, did.writes, arrived, did.story)
		case runs > 1+min(lies, 1):
			l.t.Errorf("%s: the handler ran %d times in one attempt; the peer lied %d times: %s", did.id, runs, lies, did.story)
		case did.sent == delivery.SentNever && arrived > 0: // of two, the first can have been refused
			l.t.Errorf("%s: never sent, but it arrived: %s", did.id, did.story)
		case did.sent == delivery.SentRefused && runs > lies:
			l.t.Errorf("%s: refused, but the handler ran %d times; the peer lied %d times: %s", did.id, runs, lies, did.story)
		}
	}
	faults := 0
	for _, n := range l.peer.Tally().Counts().Faults {
		faults += int(n)
	}
	l.totals.sum(ran, faults)
}

func (s *totals) sum(ran, faults int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran += ran
	s.faults += faults
}

func (s *totals) add(trace protoselect.Trace, sent delivery.Sent, lies int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.writes += trace.Writes
	if trace.Writes > 1 {
		s.resends++
		if lies > 0 {
			s.liesBelieved++
		}
	}
	switch trace.Protocol {
	case delivery.ProtocolHTTP1:
		s.overHTTP1++
	case delivery.ProtocolHTTP2:
		s.overHTTP2++
	case delivery.ProtocolHTTP3:
		s.overHTTP3++
	}
	switch sent {
	case delivery.SentProcessed:
		s.answers++
	case delivery.SentNever:
		s.never++
	case delivery.SentRefused:
		s.refused++
	case delivery.SentAmbiguous:
		s.ambiguous++
	default:
		s.other++
	}
}

// String is the test's log line.
func (s *totals) String() string {
	return fmt.Sprintf("%d requests, %d writes, %d resends (%d for a lie); last over h1 %d, h2 %d, h3 %d; %d faults; the handler ran %d times; "+
		"answered %d (%d by a stray second answer), never %d, refused %d, ambiguous %d", s.requests, s.writes, s.resends, s.liesBelieved,
		s.overHTTP1, s.overHTTP2, s.overHTTP3, s.faults, s.ran, s.answers, s.strays, s.never, s.refused, s.ambiguous)
}

// complete reports whether the sequences reached every kind of outcome.
func (s *totals) complete() bool {
	reached := []int{
		s.overHTTP1, s.overHTTP2, s.overHTTP3, s.faults, s.resends, s.liesBelieved, s.answers, s.never, s.refused, s.ambiguous,
	}
	return !slices.Contains(reached, 0) && s.other == 0
}

// TestRandomFaultSequencesRunNoHandlerTwice drives selector and transport, as the
// engine wires them, through seeded sequences of faults over real sockets.
func TestRandomFaultSequencesRunNoHandlerTwice(t *testing.T) {
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	var rows []fault.Row
	for _, row := range fault.Matrix() {
		// A closed port cannot come and go, and a body in megabytes is the
		// matrix's affair.
		if !row.Fault.Kind().Standing && row.Want.Body == 0 {
			rows = append(rows, row)
		}
	}
	const lanes = 12
	sums := &totals{}
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range lanes {
		l, end := newLane(t, ca, rows, sums)
		wg.Go(func() {
			defer end()
			for number := range numbers {
				if !t.Failed() {
					l.sequence(number)
				}
			}
		})
	}
	for number := range faultSequences {
		numbers <- number
	}
	close(numbers)
	wg.Wait()
	t.Logf("%d sequences: %s", faultSequences, sums)
	if most := 1 + faultSequences/400; sums.strays > most {
		t.Errorf("%d stray answers were taken for others, more than %d: the look before each write finds most", sums.strays, most)
	}
	if faultSequences >= 1000 && !sums.complete() {
		t.Error("the sequences do not reach every outcome")
	}
}
