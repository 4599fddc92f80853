package storage

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// golden is a store that a script of testdata/keys drives. Its times, ids and
// positions are fixed, so that its bytes are.
type golden struct {
	*bench
	t    *testing.T
	n    uint64
	seen map[string]string // rows that were printed already
}

// TestKeysAndValuesAreTheOnesOfTheFormat holds the bytes of the store against the
// scripts in testdata/keys. A difference means a new format version.
func TestKeysAndValuesAreTheOnesOfTheFormat(t *testing.T) {
	datadriven.Walk(t, "testdata/keys", func(t *testing.T, path string) {
		g := &golden{bench: openBench(t, nil), t: t, seen: map[string]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return g.run(d)
		})
	})
}

// goldenTime is when every script begins.
var goldenTime = time.UnixMilli(1_700_000_000_000).UTC()

func (g *golden) run(d *datadriven.TestData) string {
	var sub uint64
	d.MaybeScanArgs(g.t, "sub", &sub)
	switch d.Cmd {
	case "publish":
		g.publishCmd(d)
	case "move":
		g.moveCmd(d, delivery.SubscriberNum(sub))
	case "lease":
		rows := append(g.ready(delivery.SubscriberNum(sub)), g.retrying(delivery.SubscriberNum(sub))...)
		r := rows[0]
		g.mustCommit(&delivery.Leased{
			Lease: g.Lease(), Subscriber: r.Subscriber, Place: r.Place, Lane: r.Lane, Due: r.Due, UpTo: r.Seq,
		})
	case "health":
		g.mustCommit(&delivery.HealthChanged{Lease: g.Lease(), Subscriber: delivery.SubscriberNum(sub), Health: delivery.Health{
			Breaker: delivery.BreakerOpen, OpenUntil: goldenTime, Opens: 2, Consecutive: 7, FailingSince: goldenTime,
		}})
	case "replay":
		errs := g.Replay(g.t.Context(), goldenTime, []Replay{{Event: g.key(1), Subscriber: &delivery.Subscriber{Num: delivery.SubscriberNum(sub)}}})
		noErr(g.t, errs[0])
	case "purge":
		noErr(g.t, g.Purge(g.t.Context(), goldenTime, []DeliveryRef{{g.key(1), delivery.SubscriberNum(sub)}})[0])
	case "expunge":
		noErr(g.t, g.Expunge(g.t.Context(), goldenTime, g.key(1), delivery.ReasonEventDeleted))
	case "drop":
		noErr(g.t, g.DropSubscriber(g.t.Context(), goldenTime, delivery.SubscriberNum(sub), delivery.ReasonSubscriberDeleted))
	case "job":
		var id string
		d.ScanArgs(g.t, "id", &id)
		noErr(g.t, g.PutReplayJob(g.t.Context(), id, []byte("{}")))
		return g.changes([]byte{prefixMeta})
	case "meta":
		return g.changes([]byte{prefixMeta})
	default:
		g.t.Fatalf("unknown command %q", d.Cmd)
	}
	return g.changes(nil)
}

func (g *golden) key(n uint64) delivery.EventKey {
	return eventKey(goldenTime.Add(time.Duration(n)*time.Second), n)
}

func (g *golden) publishCmd(d *datadriven.TestData) {
	g.n++
	x := eventAt(g.key(g.n).Time(), g.n, "a")
	x.Event.Key = g.key(g.n)
	d.MaybeScanArgs(g.t, "id", &x.Event.ID)
	x.Dedupe.ID = x.Event.ID
	d.MaybeScanArgs(g.t, "key", &x.Event.OrderingKey)
	d.MaybeScanArgs(g.t, "source", &x.Dedupe.Source)
	var lane int
	x.Event.PrioritySet = d.MaybeScanArgs(g.t, "lane", &lane)
	if x.Event.PrioritySet {
		x.Event.Priority = delivery.Priority(lane)
	}
	if d.HasArg("own-id") {
		x.Event.ID, x.Dedupe = x.Event.Key.String(), nil
	}
	if d.HasArg("body") {
		x.Dedupe.Body = true
	}
	var due time.Time
	if d.HasArg("later") {
		due = goldenTime.Add(time.Hour)
		x.Event.DeliverAt = due
	}
	if arg, ok := d.Arg("subs"); ok {
		for i := range arg.Vals {
			var n uint64
			arg.Scan(g.t, i, &n)
			x.Targets = append(x.Targets, delivery.Target{
				Subscriber: delivery.SubscriberNum(n), Lane: x.Event.Priority, Key: delivery.HashKey(x.Event.OrderingKey),
				Due: due, Leased: d.HasArg("leased"),
			})
		}
	}
	g.publish(x)
}

func (g *golden) moveCmd(d *datadriven.TestData, sub delivery.SubscriberNum) {
	rows := append(g.ready(sub), g.retrying(sub)...)
	var to string
	d.ScanArgs(g.t, "to", &to)
	m := g.moved(rows[0], delivery.NextDelivered, delivery.ReasonDelivered, 200)
	m.Block, m.Unblock = d.HasArg("block"), d.HasArg("unblock")
	switch to {
	case "retry":
		m.Next, m.Reason, m.Due = delivery.NextRetry, delivery.ReasonStatusRetry, goldenTime.Add(time.Minute)
		m.Attempt.Result.Status, m.Attempt.Result.Body = 503, []byte("busy")
	case "parked":
		m.Next, m.Reason, m.Attempt = delivery.NextParked, delivery.ReasonOrder, nil
	case "dead":
		m.Next, m.Reason, m.Signature = delivery.NextDead, delivery.ReasonRejected, "rejected:400"
		m.Attempt.Result.Status = 400
	}
	g.mustCommit(m)
}

// changes prints the rows that were written, changed or removed since the last
// command.
func (g *golden) changes(only []byte) string {
	var out strings.Builder
	now := map[string]string{}
	noErr(g.t, g.view(func(db *pebble.DB) error {
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			if k := it.Key()[0]; k == prefixConfig || (k == prefixMeta) != (only != nil) {
				continue
			}
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			key := fmt.Sprintf("%c %s", it.Key()[0], hex.EncodeToString(it.Key()[1:]))
			now[key] = string(v)
			if old, ok := g.seen[key]; !ok || old != string(v) {
				fmt.Fprintf(&out, "+ %s\n", key)
				for line := range strings.Lines(hex.Dump(v)) {
					fmt.Fprintf(&out, "    %s", line)
				}
			}
		}
		return it.Error()
	}))
	if only != nil {
		return out.String()
	}
	for _, key := range slices.Sorted(maps.Keys(g.seen)) {
		if _, ok := now[key]; !ok {
			fmt.Fprintf(&out, "- %s\n", key)
		}
	}
	g.seen = now
	return out.String()
}
