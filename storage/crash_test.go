package storage

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// crash is what would be on the disk if the machine had died before a certain
// write, and what was acknowledged until then.
type crash struct {
	fs       *vfs.MemFS
	op       string
	acked    int // facts that were durable, at least
	recorded int // facts that were given a position, at most
}

// crashes takes a crash image before every operation that changes the disk.
type crashes struct {
	mem   *vfs.MemFS
	rec   *recorder
	acked atomic.Int64
	rng   *rand.Rand // for what was not synced; nil = it is all lost

	mu   sync.Mutex
	off  bool
	list []crash
}

func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return nil
	}
	cfg := vfs.CrashCloneCfg{}
	if c.rng != nil {
		cfg.UnsyncedDataPercent, cfg.RNG = 50, c.rng
	}
	acked := int(c.acked.Load())
	fs := c.mem.CrashClone(cfg)
	c.list = append(c.list, crash{fs, fmt.Sprintf("%v %s", op.Kind, op.Path), acked, c.rec.count()})
	return nil
}

func (c *crashes) String() string { return "crash images" }

func (c *crashes) stop() []crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	return c.list
}

// TestNothingAcknowledgedIsLostWhereverTheMachineDies runs a script of publishes,
// outcomes, retries, parking, dead letters, replays, purges and deletions, with
// flushes in between, and takes the image of a crash before every single write.
// Each image is opened: its rows are exactly those of the facts up to some point
// that is not before the last acknowledged one, and no position comes again.
func TestNothingAcknowledgedIsLostWhereverTheMachineDies(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    int
		spool    int64
		unsynced bool
	}{
		{"inline", 60, 1 << 20, false},
		{"inline, some unsynced blocks survive", 30, 1 << 20, true},
		{"spooled", 30, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) { crashEverywhere(t, c.steps, c.spool, c.unsynced) })
	}
}

func crashEverywhere(t *testing.T, steps int, spool int64, unsynced bool) {
	rec := &recorder{}
	cr := &crashes{mem: InMemory(), rec: rec}
	if unsynced {
		cr.rng = rand.New(rand.NewPCG(7, 7))
	}
	b := openBench(t, errorfs.Wrap(cr.mem, cr), rec.config, func(c *Config) { c.SpoolOver = spool })
	s := newSim(b, rec, 11)
	for i := range steps {
		s.step()
		noErr(t, s.err)
		cr.acked.Store(int64(rec.count()))
		if i%20 == 10 {
			noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
		}
	}
	images, facts := cr.stop(), rec.list()
	t.Logf("%d facts, %d crash images", len(facts), len(images))
	if len(images) < 80 || len(facts) < 20 {
		t.Fatal("the script is too short to mean anything")
	}
	dumps, payloads := map[int][]string{}, payloadsOf(t, facts)
	for k, image := range images {
		checkCrash(t, fmt.Sprintf("crash %d before %s", k, image.op), image, facts, dumps, payloads, spool)
	}
}

func checkCrash(t *testing.T, what string, image crash, facts []recorded, dumps map[int][]string, payloads []publishedPayload, spool int64) {
	t.Helper()
	b, err := tryBench(t, image.fs, func(c *Config) { c.SpoolOver = spool })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer b.close()
	got := b.dump()
	n := image.acked
	for ; n <= image.recorded; n++ {
		if dumps[n] == nil {
			dumps[n] = foldAll(t, facts[:n], b.Partitions(), false)
		}
		if slices.Equal(got, dumps[n]) {
			break
		}
	}
	if n > image.recorded {
		sameRows(t, what+", compared with what was acknowledged", got, dumps[image.acked])
	}
	r := b.publish(b.event("after the crash", 1))
	if image.recorded > 0 && r.Position <= facts[image.recorded-1].pos {
		t.Fatalf("%s: position %d comes again", what, r.Position)
	}
	for _, p := range payloads {
		if p.from <= n && (p.to == 0 || p.to > n) {
			checkPayload(t, b, what, p)
		}
	}
}

// publishedPayload is an event and which numbers of facts leave it there.
type publishedPayload struct {
	key      delivery.EventKey
	payload  string
	from, to int // to 0 = it is never deleted
}

func payloadsOf(t *testing.T, facts []recorded) (list []publishedPayload) {
	for i, f := range facts {
		fact, err := DecodeFact(f.bytes)
		noErr(t, err)
		switch x := fact.(type) {
		case *delivery.Published:
			list = append(list, publishedPayload{key: x.Event.Key, payload: fmt.Sprintf("{%q:%q}", "id", x.Event.ID), from: i + 1})
		case *delivery.Expunged:
			for j := range list {
				if list[j].key == x.Event {
					list[j].to = i + 1
				}
			}
		}
	}
	return list
}

// checkPayload reads the payload of an event, from its row or its file.
func checkPayload(t *testing.T, b *bench, what string, p publishedPayload) {
	e, err := b.Event(t.Context(), p.key)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	payload := e.Payload
	if e.Spool != "" {
		r, err := b.OpenPayload(e.Spool)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		payload, err = io.ReadAll(r)
		noErr(t, err)
		noErr(t, r.Close())
	}
	if string(payload) != p.payload {
		t.Fatalf("%s: payload %q, want %q", what, payload, p.payload)
	}
}

// TestRetentionCanDieAnywhereWithoutTouchingWhatIsPending takes crash images of a
// retention run.
func TestRetentionCanDieAnywhereWithoutTouchingWhatIsPending(t *testing.T) {
	rec := &recorder{}
	cr := &crashes{mem: InMemory(), rec: rec, off: true}
	b := openBench(t, errorfs.Wrap(cr.mem, cr), rec.config, func(c *Config) { c.SpoolOver = 10 })
	old := time.Now().Add(-40 * 24 * time.Hour).Truncate(time.Hour)
	var pending, dead []delivery.EventKey
	for i := range 12 {
		at := old.Add(time.Duration(i) * time.Hour)
		x := b.publish(eventAt(at, uint64(i), fmt.Sprint("e", i), 1))
		rows := b.ready(1)
		row := rows[len(rows)-1]
		switch i % 3 {
		case 0:
			b.mustCommit(b.delivered(row))
		case 1:
			m := b.died(row)
			m.At = time.Now() // long after it was accepted
			b.mustCommit(m)
			dead = append(dead, x.Event)
		default:
			pending = append(pending, x.Event)
		}
	}
	cr.mu.Lock()
	cr.off = false
	cr.mu.Unlock()
	if _, err := b.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	images := cr.stop()
	t.Logf("%d crash images", len(images))
	for k, image := range images {
		what := fmt.Sprintf("crash %d before %s", k, image.op)
		b, err := tryBench(t, image.fs, func(c *Config) { c.SpoolOver = 10 })
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for again := range 2 {
			for _, key := range pending {
				e, err := b.Event(t.Context(), key)
				if err != nil {
					t.Fatalf("%s (%d): %v", what, again, err)
				}
				r, err := b.OpenPayload(e.Spool)
				if err != nil {
					t.Fatalf("%s (%d): %v", what, again, err)
				}
				r.Close()
			}
			for _, key := range dead {
				if _, e, err := b.DeadLetter(t.Context(), key, 1); err != nil || e == nil {
					t.Fatalf("%s (%d): dead letter %v", what, again, err)
				} else if r, err := b.OpenPayload(e.Spool); err != nil {
					t.Fatalf("%s (%d): %v", what, again, err)
				} else {
					r.Close()
				}
			}
			if _, err := b.Retain(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		b.close()
	}
}

// TestDeletingATenantCanDieAnywhereAndIsFinishedByTheNext takes crash images of a
// tenant's deletion. Whatever it left, another tenant's events are whole, and the
// deletion that is made again leaves nothing of the first, files included.
func TestDeletingATenantCanDieAnywhereAndIsFinishedByTheNext(t *testing.T) {
	rec := &recorder{}
	cr := &crashes{mem: InMemory(), rec: rec, off: true}
	spooled := func(c *Config) { c.SpoolOver = 30 }
	b := openBench(t, errorfs.Wrap(cr.mem, cr), rec.config, spooled)
	const events = stepSize + 20 // more than one step
	var others []delivery.EventKey
	for i := range events {
		x := b.event(fmt.Sprint("e", i), 1)
		x.Event.Tenant = 8
		if i%10 == 0 {
			x.Event.Payload = fmt.Appendf(nil, "%050d", i) // a file
		}
		if i%50 == 0 {
			x.Event.Tenant, x.Targets[0].Subscriber = 9, 2
		}
		if r := b.publish(x); i%50 == 0 {
			others = append(others, r.Event)
		}
	}
	b.mustCommit(b.died(b.ready(1)[0]))
	cr.mu.Lock()
	cr.off = false
	cr.mu.Unlock()
	remove := func(b *bench) {
		t.Helper()
		noErr(t, b.DropSubscriber(t.Context(), time.Now(), 1, delivery.ReasonTenantDeleted))
		noErr(t, b.ExpungeTenant(t.Context(), time.Now(), 8))
	}
	remove(b)
	images := cr.stop()
	t.Logf("%d crash images", len(images))
	if len(images) < 4 {
		t.Fatal("too few to mean anything")
	}
	for k, image := range images {
		what := fmt.Sprintf("crash %d before %s", k, image.op)
		b, err := tryBench(t, image.fs, spooled)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		remove(b)
		if page, _, err := b.Events(t.Context(), Filter{Tenant: 8}, "", 10); err != nil || len(page) != 0 {
			t.Fatalf("%s: %d events are left, %v", what, len(page), err)
		}
		if len(b.ready(1)) != 0 || len(b.ready(2)) != len(others) {
			t.Fatalf("%s: %d rows of the deleted tenant, %d of the other", what, len(b.ready(1)), len(b.ready(2)))
		}
		b.close() // and open: what nothing refers to is collected
		b, err = tryBench(t, image.fs, spooled)
		noErr(t, err)
		for _, key := range others {
			e, err := b.Event(t.Context(), key)
			noErr(t, err)
			r, err := b.OpenPayload(e.Spool)
			noErr(t, err)
			noErr(t, r.Close())
		}
		b.close()
	}
}

// injected fails writes from a certain one on, until it is healed.
type injected struct {
	from  int64
	n     atomic.Int64
	heal  atomic.Bool
	fired atomic.Bool
	syncs bool  // syncs alone fail
	err   error // nil = errInjected
}

// is is the error that callers must see.
func (i *injected) is() error {
	if i.err != nil {
		return i.err
	}
	return errInjected
}

var errInjected = errors.New("injected I/O error")

func (i *injected) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || i.heal.Load() {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileClose, errorfs.OpFilePreallocate, errorfs.OpLock, errorfs.OpRemove, errorfs.OpRemoveAll:
		return nil // these lose nothing
	}
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	if i.syncs && !sync || i.n.Add(1) < i.from {
		return nil
	}
	i.fired.Store(true)
	return i.is()
}

func (i *injected) String() string { return "failing writes" }

// TestEveryFailedWriteReachesTheCallerAndTheStoreComesBack lets the disk fail from
// the k-th write on, for every k: whoever was told of a success finds it after
// the store is opened again in the same process, everybody else got an error, and
// the store says why it is not ready.
func TestEveryFailedWriteReachesTheCallerAndTheStoreComesBack(t *testing.T) {
	for k := int64(1); ; k++ {
		inj := &injected{from: k}
		if !failFrom(t, inj) {
			t.Logf("%d writes", k-1)
			if k < 30 {
				t.Fatal("the script is too short to mean anything")
			}
			return
		}
	}
}

// failFrom runs the script once and reports whether a write failed.
func failFrom(t *testing.T, inj *injected) bool {
	what := fmt.Sprintf("failing from write %d on", inj.from)
	rec := &recorder{}
	fs := errorfs.Wrap(InMemory(), inj)
	b, err := tryBench(t, fs, rec.config, func(c *Config) { c.MemTable = 256 << 10 })
	if err != nil {
		if !errors.Is(err, inj.is()) {
			t.Fatalf("%s: open: %v", what, err)
		}
		inj.heal.Store(true)
		b, err = tryBench(t, fs, rec.config)
		noErr(t, err)
		b.close()
		return true
	}
	defer b.close()
	s := newSim(b, rec, 5)
	acked := 0
	for i := range 25 {
		before := rec.count()
		s.step()
		if s.err != nil {
			acked = before
			break
		}
		acked = rec.count()
		if i == 12 {
			_ = b.view(func(db *pebble.DB) error { return db.Flush() })
		}
	}
	if !inj.fired.Load() {
		noErr(t, s.err)
		return false
	}
	if s.err != nil && !errors.Is(s.err, delivery.ErrNotReady) {
		t.Fatalf("%s: %v", what, s.err)
	}
	if err := b.Healthy(); s.err != nil && !errors.Is(err, inj.is()) {
		t.Fatalf("%s: the store says %v", what, err)
	}
	recorded := rec.count()
	inj.heal.Store(true)
	if err := b.Reopen(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	noErr(t, b.Healthy())
	got := b.dump()
	for n := acked; ; n++ {
		if want := foldAll(t, rec.list()[:n], b.Partitions(), false); slices.Equal(got, want) {
			break
		} else if n == recorded {
			sameRows(t, what, got, want)
		}
	}
	if r := b.publish(b.event("afterwards", 1)); r.Position == 0 {
		t.Fatalf("%s: no position", what)
	}
	return true
}
