package bench

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/delivery"
)

// eventMaker makes events as the engine would, with keys that follow each other
// in time.
type eventMaker struct {
	tag    string
	begin  time.Time
	bodies *load.Bodies
}

func newEventMaker(tag string, body int, seed uint64) (*eventMaker, error) {
	bodies, err := load.NewBodies(body, seed)
	return &eventMaker{tag: tag, begin: time.Now(), bodies: bodies}, err
}

// event makes event n for subscribers, all of them in the common lane.
func (m *eventMaker) event(n int, subs ...delivery.SubscriberNum) *delivery.Published {
	id := m.tag + "-" + strconv.Itoa(n)
	payload := m.bodies.Append(nil, n, time.Duration(n))
	sum := sha256.Sum256(payload)
	p := &delivery.Published{
		Event: &delivery.Event{
			Key: m.key(n), ID: id, Tenant: 1, Topic: "bench.event", ContentType: "application/json",
			Payload: payload, Priority: delivery.PriorityNormal,
		},
		Dedupe:  &delivery.Dedupe{ID: id, Content: [16]byte(sum[:16])},
		Targets: make([]delivery.Target, len(subs)),
	}
	for i, sub := range subs {
		p.Targets[i] = delivery.Target{Subscriber: sub, Lane: delivery.PriorityNormal}
	}
	return p
}

// key is a UUIDv7 (RFC 9562 section 5.7): a millisecond for a hundred events,
// and the number in place of the random bits.
func (m *eventMaker) key(n int) delivery.EventKey {
	var k delivery.EventKey
	binary.BigEndian.PutUint64(k[:8], uint64(m.begin.UnixMilli()+int64(n/100))<<16) //nolint:gosec // after 1970
	binary.BigEndian.PutUint64(k[8:], uint64(n))                                    //nolint:gosec // positive
	k[6], k[8] = 0x70, 0x80
	k[7] = m.tag[0]
	return k
}

// delivered is the outcome of a first attempt that was answered with 200.
func delivered(lease delivery.Lease, row delivery.Row) *delivery.Moved {
	at := time.Now()
	return &delivery.Moved{
		Lease: lease, Row: row, At: at, Next: delivery.NextDelivered, Reason: delivery.ReasonDelivered,
		Attempt: &delivery.Attempt{
			Number: row.Attempts + 1, LeasedAt: at, StartedAt: at, EndedAt: at, Lease: lease,
			Result: delivery.Result{
				Status: 200, Protocol: delivery.ProtocolHTTP1, Remote: "192.0.2.1:443", BytesSent: 1200,
				Phases: delivery.Phases{FirstByte: time.Millisecond, Total: 2 * time.Millisecond},
			},
			Outcome: delivery.Outcome{Reason: delivery.ReasonDelivered},
		},
	}
}
