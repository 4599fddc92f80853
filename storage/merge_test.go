package storage

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestMergesThatShareMemory: a merged value stays what it is until it is closed,
// however many others are merged meanwhile, and nothing of a merge shows in the one
// that uses its memory next.
func TestMergesThatShareMemory(t *testing.T) {
	g := newGen(9)
	key := appendTimeRow(nil, 1, 2, eventKey(time.Unix(1, 0), 1))
	var open []func()
	for range 2000 {
		var operands [][]byte
		for range 1 + g.IntN(3) {
			f := &delivery.Replayed{Lease: delivery.Lease{Node: delivery.NodeID(bytes.Repeat([]byte{'n'}, g.IntN(3000)))}, Attempts: g.IntN(99)}
			operands = append(operands, appendReplayed(nil, f))
		}
		at := g.IntN(len(operands)) // merged from here on, first what is newer
		m, err := newMerge(key, operands[at])
		noErr(t, err)
		for _, v := range operands[at+1:] {
			noErr(t, m.MergeNewer(v))
		}
		for _, v := range slices.Backward(operands[:at]) {
			noErr(t, m.MergeOlder(v))
		}
		got, closer, err := m.Finish(true)
		noErr(t, err)
		want := bytes.Join(operands, nil)
		open = append(open, func() {
			if !bytes.Equal(got, want) {
				t.Fatalf("merged to %d bytes, want %d", len(got), len(want))
			}
			noErr(t, closer.Close())
		})
		for len(open) > 3 {
			i := g.IntN(len(open))
			open[i]()
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, check := range open {
		check()
	}
}
