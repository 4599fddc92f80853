package storage

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// gen makes random values that a fact may hold.
type gen struct{ *rand.Rand }

func newGen(seed uint64) gen { return gen{rand.New(rand.NewPCG(seed, 42))} }

func (g gen) maybe() bool { return g.IntN(2) == 0 }

func (g gen) text(most int) string {
	b := make([]byte, g.IntN(most+1))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return string(b)
}

func (g gen) time() time.Time {
	if g.IntN(4) == 0 {
		return time.Time{}
	}
	return time.Unix(0, g.Int64N(4e18)).UTC()
}

func (g gen) key() (k delivery.EventKey) {
	for i := range k {
		k[i] = byte(g.Uint32())
	}
	return k
}

func (g gen) number() uint64 { return g.Uint64() >> g.IntN(64) }

func (g gen) lease() delivery.Lease {
	return delivery.Lease{Node: delivery.NodeID(g.text(8)), Epoch: delivery.Epoch(g.number())}
}

func (g gen) event() *delivery.Event {
	e := &delivery.Event{
		Key: g.key(), ID: g.text(20), Tenant: delivery.TenantNum(g.Uint32()), Topic: g.text(20), ContentType: g.text(20),
		OrderingKey: g.text(5), Priority: delivery.Priority(g.IntN(3)), PrioritySet: g.maybe(), DeliverAt: g.time(),
		TraceParent: g.text(5),
	}
	if g.maybe() {
		e.ID = e.Key.String()
	}
	if n := g.IntN(4); n == 3 {
		for range 1 + g.IntN(delivery.MaxEventHeaders) {
			e.Headers = append(e.Headers, delivery.Header{Name: g.text(9), Value: g.text(9)})
		}
	}
	if g.IntN(4) == 0 {
		e.Spool, e.Size = "x"+g.text(9), int64(g.number()>>2)
	} else if p := g.text(40); p != "" {
		e.Payload, e.Size = []byte(p), int64(len(p))
	}
	return e
}

func (g gen) row() delivery.Row {
	return delivery.Row{
		Subscriber: delivery.SubscriberNum(g.number()), Event: g.key(), Place: delivery.Place(g.IntN(3)),
		Lane: delivery.Priority(g.IntN(3)), Seq: delivery.Seq(g.number()), Due: g.time(), Key: delivery.KeyHash(g.number()),
		Attempts: g.IntN(1000), Replayed: g.maybe(), Base: g.IntN(3), First: delivery.Seq(g.number()), LeasedBy: delivery.Epoch(g.number()),
		EnteredAt: g.time(),
	}
}

func (g gen) attempt() *delivery.Attempt {
	a := &delivery.Attempt{
		Number: g.IntN(50), LeasedAt: g.time(), StartedAt: g.time(), EndedAt: g.time(), Lease: g.lease(),
		Result: delivery.Result{
			Status: g.IntN(600), Sent: delivery.Sent(g.IntN(4)), Cause: delivery.Cause(g.IntN(16)), Detail: g.text(10),
			RetryAfter: g.text(3), Date: g.text(3), Location: g.text(3), Protocol: delivery.Protocol(g.IntN(4)),
			Reused: g.maybe(), Fallback: g.maybe(), RaceLoser: g.text(3), Remote: g.text(10), BytesSent: int64(g.number() >> 1),
			Truncated: g.maybe(),
			Phases: delivery.Phases{
				DNS: time.Duration(g.IntN(3)), Connect: time.Duration(g.IntN(1e9)), TLS: time.Duration(g.IntN(3)),
				QUIC: time.Duration(g.IntN(3)), FirstByte: time.Duration(g.IntN(1e9)), Total: time.Duration(g.IntN(1e9)),
			},
		},
		Outcome: delivery.Outcome{
			Class: delivery.Class(g.IntN(8)), Reason: delivery.Reason(g.IntN(64)), RetryAfter: time.Duration(g.IntN(1e9)), Failure: g.maybe(),
		},
	}
	if b := g.text(20); b != "" {
		a.Result.Body = []byte(b)
	}
	return a
}

// fact makes a random fact of each kind in turn.
func (g gen) fact(kind int) delivery.Fact {
	switch kind % 8 {
	case 0:
		f := &delivery.Published{Lease: g.lease(), Event: g.event()}
		if g.maybe() {
			f.Dedupe = &delivery.Dedupe{Source: g.text(5), ID: g.text(5), Body: g.maybe(), Content: g.key()}
		}
		for range g.IntN(4) {
			f.Targets = append(f.Targets, delivery.Target{
				Subscriber: delivery.SubscriberNum(g.number()), Lane: delivery.Priority(g.IntN(3)),
				Key: delivery.KeyHash(g.number()), Leased: g.maybe(), Due: g.time(),
			})
		}
		return f
	case 1:
		return &delivery.Leased{
			Lease: g.lease(), Subscriber: delivery.SubscriberNum(g.number()), Place: delivery.Place(g.IntN(3)),
			Lane: delivery.Priority(g.IntN(3)), Key: delivery.KeyHash(g.number()), Due: g.time(), UpTo: delivery.Seq(g.number()),
		}
	case 2:
		f := &delivery.Moved{
			Lease: g.lease(), Row: g.row(), At: g.time(), Next: delivery.Next(1 + g.IntN(5)), Reason: delivery.Reason(g.IntN(64)),
			Due: g.time(), Note: g.text(9), Block: g.maybe(), Unblock: g.maybe(), Signature: g.text(9),
		}
		if g.maybe() {
			f.Attempt = g.attempt()
		}
		if g.maybe() {
			f.Prior = g.attempt()
		}
		if g.maybe() {
			f.Copy = g.event()
		}
		return f
	case 3:
		f := &delivery.Replayed{
			Lease: g.lease(), At: g.time(), Event: g.key(), Subscriber: delivery.SubscriberNum(g.number()),
			Lane: delivery.Priority(g.IntN(3)), Key: delivery.KeyHash(g.number()), Attempts: g.IntN(99),
		}
		if g.maybe() {
			f.Copy = g.event()
		}
		if g.maybe() {
			f.Dead = g.dead()
		}
		return f
	case 4:
		f := &delivery.Purged{Lease: g.lease(), At: g.time(), Event: g.key(), Subscriber: delivery.SubscriberNum(g.number())}
		if g.maybe() {
			f.Dead = g.dead()
		}
		return f
	case 5:
		f := &delivery.Expunged{Lease: g.lease(), At: g.time(), Event: g.key(), Reason: delivery.Reason(g.IntN(64))}
		for range g.IntN(3) {
			f.Targets = append(f.Targets, delivery.SubscriberNum(g.number()))
			f.Dead = append(f.Dead, *g.dead())
		}
		return f
	case 6:
		f := &delivery.Dropped{
			Lease: g.lease(), At: g.time(), Subscriber: delivery.SubscriberNum(g.number()), Reason: delivery.Reason(g.IntN(64)), Last: g.maybe(),
		}
		for range g.IntN(3) {
			f.Rows = append(f.Rows, g.row())
			f.Dead = append(f.Dead, *g.dead())
		}
		return f
	default:
		return &delivery.HealthChanged{Lease: g.lease(), Subscriber: delivery.SubscriberNum(g.number()), Health: g.health()}
	}
}

func (g gen) dead() *delivery.DeadLetter {
	return &delivery.DeadLetter{
		Tenant: delivery.TenantNum(g.Uint32()), Subscriber: delivery.SubscriberNum(g.number()), Event: g.key(), At: g.time(),
	}
}

func (g gen) health() delivery.Health {
	return delivery.Health{
		Breaker: delivery.BreakerState(g.IntN(3)), OpenUntil: g.time(), Opens: g.IntN(99), Consecutive: g.IntN(1e6),
		FailingSince: g.time(), LastSuccess: g.time(),
	}
}

func TestEveryFactSurvivesItsEncoding(t *testing.T) {
	g := newGen(1)
	for i := range 4000 {
		fact := g.fact(i)
		b, err := AppendFact(nil, fact)
		noErr(t, err)
		got, err := DecodeFact(b)
		if err != nil || !reflect.DeepEqual(got, fact) {
			t.Fatalf("%T: %v\ngot  %+v\nwant %+v", fact, err, got, fact)
		}
		for _, cut := range []int{0, 1, len(b) / 2, len(b) - 1} {
			if _, err := DecodeFact(b[:cut]); err == nil {
				t.Fatalf("%T: a prefix of %d of %d bytes decodes", fact, cut, len(b))
			}
		}
		if _, err := DecodeFact(append(b, 0)); err == nil {
			t.Fatalf("%T: a trailing byte decodes", fact)
		}
	}
	if _, err := DecodeFact([]byte{codecVersion + 1, factMoved}); err == nil {
		t.Error("a fact of a newer version decodes")
	}
}

func TestEveryRowSurvivesItsEncoding(t *testing.T) {
	g := newGen(2)
	milli := func(at time.Time) time.Time { return milliTime(milliOf(at)) }
	for range 4000 {
		row := g.row()
		row.EnteredAt, row.Due = milli(row.EnteredAt), milli(row.Due)
		p := delivery.Partition(g.IntN(256))
		var key []byte
		switch row.Place {
		case delivery.PlaceReady:
			row.Due = time.Time{}
			key = appendReadyRow(nil, p, row.Subscriber, row.Lane, row.Seq)
		case delivery.PlaceRetry:
			key = appendRetryRow(nil, p, row.Subscriber, row.Due, row.Seq)
		case delivery.PlaceParked:
			row.Due = time.Time{}
			key = appendParkedRow(nil, p, row.Subscriber, row.Key, row.Seq)
		}
		value := appendRow(nil, &row)
		got, err := decodeRow(key, value)
		if err != nil || got != row {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, row)
		}
		if _, err := decodeRow(key[:len(key)-1], value); err == nil {
			t.Fatal("a short key decodes")
		}
	}
}

func TestKeysLieInTheOrderOfWhatTheyName(t *testing.T) {
	g := newGen(3)
	type named struct {
		row delivery.Row
		key []byte
	}
	for _, place := range []delivery.Place{delivery.PlaceReady, delivery.PlaceRetry, delivery.PlaceParked} {
		var list []named
		for range 300 {
			r := g.row()
			r.Due = milliTime(milliOf(r.Due))
			var key []byte
			switch place {
			case delivery.PlaceReady:
				r.Lane, r.Due = 0, time.Time{}
				key = appendReadyRow(nil, 5, 9, r.Lane, r.Seq)
			case delivery.PlaceRetry:
				key = appendRetryRow(nil, 5, 9, r.Due, r.Seq)
			case delivery.PlaceParked:
				r.Due = time.Time{}
				key = appendParkedRow(nil, 5, 9, 1, r.Seq)
			}
			list = append(list, named{r, key})
		}
		slices.SortFunc(list, func(a, b named) int { return bytes.Compare(a.key, b.key) })
		if !slices.IsSortedFunc(list, func(a, b named) int { return rowOrder(a.row, b.row) }) {
			t.Errorf("place %d: keys lie in another order than due time and sequence", place)
		}
	}
}

func TestOtherValuesSurviveTheirEncoding(t *testing.T) {
	g := newGen(4)
	for range 2000 {
		h := g.health()
		if got, err := decodeHealth(appendHealth(nil, &h)); err != nil || got != h {
			t.Fatalf("health %+v, %v, want %+v", got, err, h)
		}
		d := dedupeRow{event: g.key(), content: g.key(), deliveries: g.IntN(1e6), source: g.text(9), id: g.text(9), public: g.text(9)}
		if got, err := decodeDedupe(appendDedupe(nil, &d)); err != nil || got != d {
			t.Fatalf("dedupe row %+v, %v, want %+v", got, err, d)
		}
		n := g.Int64() - g.Int64()
		if got, err := decodeCounter(appendCounter(nil, n)); err != nil || got != n {
			t.Fatalf("counter %d, %v, want %d", got, err, n)
		}
		m := g.fact(2).(*delivery.Moved)
		value := appendDead(nil, m)
		if m.Copy != nil {
			value = append(value, m.Copy.Payload...)
			m.Copy.Key = m.Row.Event
			if m.Copy.ID == m.Copy.Key.String() || value == nil {
				continue
			}
		}
		if _, err := decodeDead(m.Row.Event, value, true); err != nil {
			t.Fatalf("dead letter: %v", err)
		}
	}
}

// TestLongTimelineEntriesKeepTheirLength covers the length prefix on both sides
// of the point where it grows.
func TestLongTimelineEntriesKeepTheirLength(t *testing.T) {
	for _, n := range []int{0, 100, 1<<14 - 60, 1<<14 - 1, 1 << 14, 1 << 16, 1 << 21} {
		m := &delivery.Moved{At: time.Unix(5, 0).UTC(), Next: delivery.NextRetry, Note: string(make([]byte, n)), Due: time.UnixMilli(7).UTC()}
		b := appendMoved(appendReceived(nil, true, delivery.Lease{Epoch: 3}), m)
		b = appendMoved(b, &delivery.Moved{Next: delivery.NextDelivered})
		d := decoder{b: b}
		var notes []int
		for len(d.b) > 0 {
			notes = append(notes, len(d.entry(delivery.EventKey{}, true).note))
		}
		if err := d.end("timeline"); err != nil || !slices.Equal(notes, []int{0, n, 0}) {
			t.Errorf("note of %d bytes: %v, %v", n, notes, err)
		}
	}
}

func TestATimelineKeepsOnlyAGlimpseOfBodies(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 16<<10)
	for next, want := range map[delivery.Next]int{delivery.NextRetry: bodyKeptFailure, delivery.NextDelivered: bodyKeptSuccess} {
		m := &delivery.Moved{Next: next, Attempt: &delivery.Attempt{Number: 1, Result: delivery.Result{Body: body}}}
		d := decoder{b: appendMoved(nil, m)}
		e := d.entry(delivery.EventKey{}, true)
		if r := e.attempt.Result; len(r.Body) != want || !r.Truncated {
			t.Errorf("next %d: %d bytes kept, truncated %v", next, len(r.Body), r.Truncated)
		}
	}
}

func TestALongTimelineKeepsItsEnds(t *testing.T) {
	g := newGen(8)
	const n = 500
	key := []byte{prefixTime}
	operands := [][]byte{appendReceived(nil, false, delivery.Lease{})}
	for i := range n {
		m := &delivery.Moved{Next: delivery.NextRetry, At: time.Unix(int64(i+1), 0), Note: string(make([]byte, g.IntN(300)))}
		operands = append(operands, appendMoved(nil, m))
	}
	want := merged(t, g, key, operands)
	for range 30 {
		if got := merged(t, g, key, operands); !bytes.Equal(got, want) {
			t.Fatal("what is left depends on how compactions group it")
		}
	}
	var tl timeline
	noErr(t, tl.read(want, true))
	d := decoder{b: want}
	var skipped uint64
	var seen []int64
	for len(d.b) > 0 {
		e := d.entry(delivery.EventKey{}, true)
		skipped += e.skipped
		if e.kind == entryMoved {
			seen = append(seen, e.at.Unix())
		}
	}
	if skipped != n+1-timelineFirst-timelineLast || seen[0] != 1 || seen[timelineFirst-2] != timelineFirst-1 ||
		seen[timelineFirst-1] != n+1-timelineLast || seen[len(seen)-1] != n {
		t.Errorf("%d skipped, seen %v", skipped, seen)
	}
	if short := merged(t, g, key, operands[:timelineFirst+timelineLast]); !bytes.Equal(short, slices.Concat(operands[:timelineFirst+timelineLast]...)) {
		t.Error("a timeline that is not too long was shortened")
	}
}

// merged merges operands in a random grouping, the way compactions do.
func merged(t *testing.T, g gen, key []byte, operands [][]byte) []byte {
	t.Helper()
	for len(operands) > 1 {
		from := g.IntN(len(operands) - 1)
		to := from + 2 + g.IntN(len(operands)-from-1)
		run := operands[from:to]
		var m pebble.ValueMerger
		var err error
		if g.maybe() {
			m, err = newMerge(key, run[0])
			for _, v := range run[1:] {
				noErr(t, err)
				err = m.MergeNewer(v)
			}
		} else {
			m, err = newMerge(key, run[len(run)-1])
			for _, v := range slices.Backward(run[:len(run)-1]) {
				noErr(t, err)
				err = m.MergeOlder(v)
			}
		}
		noErr(t, err)
		v, _, err := m.Finish(from == 0)
		noErr(t, err)
		operands = slices.Concat(operands[:from], [][]byte{v}, operands[to:])
	}
	m, err := newMerge(key, operands[0])
	noErr(t, err)
	v, _, err := m.Finish(true)
	noErr(t, err)
	return v
}

func TestMergingGivesTheSameHoweverCompactionsGroupIt(t *testing.T) {
	g := newGen(5)
	for range 300 {
		for _, prefix := range []byte{prefixTime, prefixOpen, prefixLease} {
			var operands [][]byte
			for i := range 2 + g.IntN(8) {
				switch prefix {
				case prefixTime:
					operands = append(operands, appendReceived(nil, true, g.lease()))
				case prefixOpen:
					operands = append(operands, appendCounter(nil, g.Int64N(100)-50))
				case prefixLease:
					w := watermark{epoch: delivery.Epoch(i / 3), due: milliTime(uint64(g.IntN(3))), upTo: delivery.Seq(g.IntN(3)), pos: delivery.Position(i)}
					operands = append(operands, appendWatermark([]byte{codecVersion}, w))
				}
			}
			if g.IntN(5) == 0 && prefix != prefixTime {
				operands[g.IntN(len(operands))] = []byte("garbage") // counts as nothing
			}
			key := []byte{prefix}
			want := merged(t, g, key, operands)
			for range 5 {
				if got := merged(t, g, key, operands); !bytes.Equal(got, want) {
					t.Fatalf("%c: %x and %x from the same operands", prefix, got, want)
				}
			}
		}
	}
}

// TestOlderWatermarksStayWhileTheyReachFurther: what only the dead epoch handed
// out must not look as if nobody ever had.
func TestOlderWatermarksStayWhileTheyReachFurther(t *testing.T) {
	mark := func(epoch delivery.Epoch, upTo delivery.Seq) watermark {
		return watermark{epoch: epoch, upTo: upTo, pos: 1000}
	}
	marks := joinWatermarks([]watermark{mark(1, 100)}, []watermark{mark(2, 50)})
	for seq, want := range map[delivery.Seq]delivery.Epoch{50: 2, 51: 1, 100: 1, 101: 0} {
		if got := leasedBy(&delivery.Row{Seq: seq}, marks); got != want {
			t.Errorf("row %d was leased by %d, want %d", seq, got, want)
		}
	}
	marks = joinWatermarks(marks, []watermark{mark(2, 120)})
	if len(marks) != 2 || leasedBy(&delivery.Row{Seq: 100}, marks) != 2 {
		t.Errorf("the second epoch goes on: %+v", marks)
	}
	// Taken back: what the first epoch handed out may still have been sent.
	marks = joinWatermarks(marks, []watermark{{epoch: 2, pos: 2000}})
	for seq, want := range map[delivery.Seq]delivery.Epoch{100: 1, 101: 0} {
		if got := leasedBy(&delivery.Row{Seq: seq}, marks); got != want {
			t.Errorf("after the retraction row %d was leased by %d, want %d", seq, got, want)
		}
	}
	for e := range delivery.Epoch(100) {
		marks = joinWatermarks(marks, []watermark{mark(3+e, 10)})
		marks = joinWatermarks(marks, []watermark{mark(3+e, 20)})
	}
	if len(marks) != maxWatermarkEpochs {
		t.Errorf("%d watermarks after a hundred epochs", len(marks))
	}
	// A retry that came in later at a due time that was passed already was not
	// handed out.
	due := time.UnixMilli(5).UTC()
	w := []watermark{{epoch: 3, due: due.Add(time.Second), upTo: 9, pos: 40}}
	for seq, want := range map[delivery.Seq]delivery.Epoch{39: 3, 41: 0} {
		if got := leasedBy(&delivery.Row{Place: delivery.PlaceRetry, Due: due, Seq: seq}, w); got != want {
			t.Errorf("retry %d was leased by %d, want %d", seq, got, want)
		}
	}
}

func FuzzDecodeFact(f *testing.F) {
	g := newGen(6)
	for i := range 32 {
		b, err := AppendFact(nil, g.fact(i))
		noErr(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fact, err := DecodeFact(b)
		if err != nil {
			return
		}
		again, err := AppendFact(nil, fact)
		noErr(t, err)
		second, err := DecodeFact(again)
		if err != nil || !reflect.DeepEqual(second, fact) {
			t.Fatalf("%v: %+v became %+v", err, fact, second)
		}
	})
}

// FuzzDecodeValues feeds anything to every decoder of a stored value: they return
// an error or a value, and take no memory that the input does not account for.
func FuzzDecodeValues(f *testing.F) {
	g := newGen(7)
	for range 8 {
		r := g.row()
		f.Add(appendReadyRow(nil, 1, r.Subscriber, r.Lane, r.Seq), appendRow(nil, &r))
		f.Add([]byte{}, appendMoved(appendReceived(nil, true, g.lease()), g.fact(2).(*delivery.Moved)))
		e := g.event()
		f.Add(e.Key[:], append(appendTargets(appendEventHead(nil, e), nil), e.Payload...))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if row, err := decodeRow(key, value); err == nil {
			if again, err := decodeRow(key, appendRow(nil, &row)); err != nil || again != row {
				t.Fatalf("%v: row %+v became %+v", err, row, again)
			}
		}
		var event delivery.EventKey
		copy(event[:], key)
		_, _, _ = decodeEvent(event, value, true)
		_, _ = decodeDead(event, value, true)
		_, _ = decodeDedupe(value)
		_, _ = decodeHealth(value)
		_, _ = decodeCounter(value)
		_, _ = decodeWatermarks(nil, value)
		tl := timeline{key: event}
		_ = tl.read(value, true)
		summary := timeline{key: event}
		_ = summary.read(value, false)
		for _, kind := range []byte{cursorEvent, cursorSubscriber, cursorTenant, cursorEvents, cursorDead} {
			if c, err := parseCursor(string(value), kind); err == nil && c != (cursor{kind: kind}) {
				if again, err := parseCursor(c.String(), kind); err != nil || again != c {
					t.Fatalf("%v: cursor %+v became %+v", err, c, again)
				}
			}
		}
		_, _ = parseSpoolName(string(key))
	})
}

// TestEventsThatShareTexts: whatever an event shares its texts with, it reads the same,
// and a row that is cut off is refused.
func TestEventsThatShareTexts(t *testing.T) {
	g := newGen(11)
	like := &delivery.Event{}
	for range 500 {
		x := g.event()
		x.Topic = []string{like.Topic, "a.b", ""}[g.IntN(3)]
		x.ContentType = []string{like.ContentType, "text/plain", x.Topic}[g.IntN(3)]
		value := append(appendTargets(appendEventHead(nil, x), []delivery.Target{{Subscriber: 3}, {Subscriber: 5, Key: 7}}), x.Payload...)
		want, _, err := decodeEvent(x.Key, value, true)
		noErr(t, err)
		got, err := decodeEventLike(x.Key, value, like)
		noErr(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("beside %+v\ngot  %+v\nwant %+v", like, got, want)
		}
		if _, err := decodeEventLike(x.Key, value[:g.IntN(len(value))], like); !errors.Is(err, errCorrupt) {
			t.Fatalf("a part of the row: %v", err)
		}
		like = got
	}
}
