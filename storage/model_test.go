package storage

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

var (
	modelOps  = flag.Int("model-ops", 500, "operations of the model test")
	modelSeed = flag.Uint64("model-seed", 0, "seed of the model test; 0 = a new one")
)

// TestRandomOperationsDoWhatTheModelSays also reopens the store now and then, and
// at the end folds the recorded facts into an empty one: the rows are the same,
// key by key and byte by byte.
func TestRandomOperationsDoWhatTheModelSays(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-model-seed=%d", seed)
	rec := &recorder{}
	b := openBench(t, nil, rec.config)
	s := newSim(b, rec, seed)
	for i := range *modelOps {
		s.step()
		if s.err != nil {
			t.Fatalf("operation %d: %v", i, s.err)
		}
		if i%100 == 99 {
			s.check()
		}
		switch s.rng.IntN(200) {
		case 0:
			noErr(t, b.Reopen())
			s.check()
		case 1:
			noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
		}
	}
	s.check()
	facts := rec.list()
	for i := range facts[1:] {
		if facts[i+1].pos <= facts[i].pos {
			t.Fatalf("position %d after %d", facts[i+1].pos, facts[i].pos)
		}
	}
	sameRows(t, "folded into an empty store", foldAll(t, facts, b.Partitions(), false), b.dump())
	few := facts[:min(60, len(facts))]
	sameRows(t, "folded partition by partition", foldAll(t, few, b.Partitions(), true), foldAll(t, few, b.Partitions(), false))
}
