package storage

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

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
	start, rec := time.Now(), &recorder{}
	b := openBench(t, nil, rec.config, func(c *Config) {
		if *modelOps > 100_000 {
			c.MemTable, c.Cache = 32<<20, 128<<20
		}
	})
	s := newSim(b, rec, seed)
	for i := range *modelOps {
		s.step()
		if s.err != nil {
			t.Fatalf("operation %d: %v", i, s.err)
		}
		if i%max(100, *modelOps/50) == 99 {
			s.checkSome(2000)
			t.Logf("%d operations, %d facts, %d deliveries, %v", i+1, rec.count(), len(s.all), time.Since(start).Round(time.Second))
		}
		switch s.rng.IntN(max(200, *modelOps/50)) {
		case 0:
			noErr(t, b.Reopen())
			s.checkSome(2000)
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
	fresh := foldInto(t, facts, b.Partitions(), false)
	defer func() { noErr(t, fresh.Close()) }()
	noErr(t, b.view(func(db *pebble.DB) error {
		t.Logf("%d facts, %d rows", len(facts), sameDB(t, "folded into an empty store", fresh, db))
		return nil
	}))
	few := facts[:min(60, len(facts))]
	sameRows(t, "folded partition by partition", foldAll(t, few, b.Partitions(), true), foldAll(t, few, b.Partitions(), false))
}
