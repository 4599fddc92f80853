package storage

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

const crashSecret = "whsec_PLAINTEXT-MUST-NOT-BE-ON-DISK"

// registryState is what a caller was told: the acknowledged content. Each step
// of the script is either wholly in it or not at all.
type registryState struct {
	step    int                      // steps acknowledged
	numbers []delivery.SubscriberNum // ever given out
	subs    map[string]delivery.SubscriberNum
	docs    map[string]string
	tenants map[string]delivery.TenantNum
}

var errCleanedBefore = errors.New("nothing to clean")

func (s *registryState) clone() *registryState {
	c := *s
	c.numbers, c.subs = slices.Clone(s.numbers), maps.Clone(s.subs)
	c.docs, c.tenants = maps.Clone(s.docs), maps.Clone(s.tenants)
	return &c
}

// crashScript is a life of a registry; every entry is one durable write.
func crashScript(r *Registry, s *registryState) []func() error {
	create := func(tenant, id string, topics ...string) func() error {
		return func() error {
			sub := testSubscriber(s.tenants[tenant], id, topics...)
			sub.Signing[0].Secrets[0].Value = crashSecret
			if id == "b" {
				sub.Reserved = 1
			}
			made, err := r.CreateSubscriber(sub)
			if err == nil {
				s.subs[tenant+"/"+id] = made.Num
				s.numbers = append(s.numbers, made.Num)
			}
			return err
		}
	}
	tenant := func(id string) func() error {
		return func() error {
			t, err := r.PutTenant(delivery.Tenant{ID: id}, MustNotExist)
			if err == nil {
				s.tenants[id] = t.Num
			}
			return err
		}
	}
	remove := func(tenant, id string) func() error {
		return func() error {
			_, err := r.DeleteSubscriber(s.tenants[tenant], id, AnyVersion)
			delete(s.subs, tenant+"/"+id)
			return err
		}
	}
	doc := func(id, body string) func() error {
		return func() error {
			_, err := r.PutDoc(DocKey{Kind: "k", ID: id}, []byte(body), AnyVersion, true)
			s.docs[id] = body
			return err
		}
	}
	return []func() error{
		tenant("acme"), create("acme", "a", "*", "order.*"), create("acme", "b", "order.created"),
		doc("one", crashSecret+"1"),
		func() error {
			_, err := r.UpdateSubscriber(s.subs["acme/a"], 1, func(sub *delivery.Subscriber) error {
				sub.Topics, sub.Reserved = []string{"order.*", "user.*"}, 2
				return nil
			})
			return err
		},
		remove("acme", "b"), create("acme", "b", "*"), tenant("other"), create("other", "a", "*"),
		doc("one", crashSecret+"2"),
		func() error {
			gone, err := r.DeletedSubscribers(0, 1)
			if err != nil {
				return err
			}
			if len(gone) == 0 {
				return errCleanedBefore
			}
			return r.SubscriberCleaned(gone[0].Num)
		},
		func() error {
			_, err := r.DeleteTenant("other", AnyVersion)
			delete(s.tenants, "other")
			delete(s.subs, "other/a")
			return err
		},
		tenant("other"), create("other", "a", "*"),
	}
}

// crashImage is the disk as a crash at one moment leaves it.
type crashImage struct {
	fs    *vfs.MemFS
	acked *registryState // acknowledged before that moment
}

// recordCrashes runs the script and takes images before every write to the file
// system, so that no moment to crash in is left out.
func recordCrashes(t *testing.T, key NodeKey) []crashImage {
	t.Helper()
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	var images []crashImage
	acked := &registryState{}
	shot := func() {
		mu.Lock()
		defer mu.Unlock()
		// acked first: what is acknowledged later may be in the image, what is
		// acknowledged now must be.
		state := acked
		for _, percent := range []int{0, 50, 100} {
			images = append(images, crashImage{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), state})
		}
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			shot()
		}
		return nil
	}))
	r, err := openTestRegistry(fs, key, nil)
	noErr(t, err)
	state := &registryState{subs: map[string]delivery.SubscriberNum{}, docs: map[string]string{}, tenants: map[string]delivery.TenantNum{}}
	for i, step := range crashScript(r, state) {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		state.step++
		mu.Lock()
		acked = state.clone()
		mu.Unlock()
		if i%5 == 4 { // so that some of it is in tables
			noErr(t, r.kv.db.Flush())
		}
	}
	shot()
	noErr(t, r.kv.db.Close())
	return images
}

func TestACrashAtAnyWriteLosesNothingThatWasAcknowledged(t *testing.T) {
	key := NewNodeKey()
	images := recordCrashes(t, key)
	done := 0
	for i, image := range images {
		searchPlainText(t, image.fs, "")
		r, err := openTestRegistry(image.fs, key, nil)
		if err != nil {
			t.Fatalf("image %d after step %d: %v", i, image.acked.step, err)
		}
		if checkCrashed(t, r, image.acked) {
			done++
		}
		noErr(t, r.kv.db.Close())
		if t.Failed() {
			t.Fatalf("image %d, after step %d", i, image.acked.step)
		}
	}
	t.Logf("%d images, in %d of them the running step had been done", len(images), done)
	if done == 0 {
		t.Error("no crash between a write and its acknowledgement was tried")
	}
}

// searchPlainText fails if a file holds the secret as it is.
func searchPlainText(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	noErr(t, err)
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		noErr(t, err)
		if info.IsDir() {
			searchPlainText(t, fs, path)
			continue
		}
		f, err := fs.Open(path)
		noErr(t, err)
		data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
		noErr(t, errors.Join(err, f.Close()))
		if bytes.Contains(data, []byte(crashSecret)) {
			t.Errorf("%s holds the secret in plain text", path)
		}
	}
}

// checkCrashed holds a recovered registry against what was acknowledged. The
// step that was running when the crash came may be in it or not, so only what
// no step at all may change is compared exactly.
func checkCrashed(t *testing.T, r *Registry, acked *registryState) (doneBefore bool) {
	t.Helper()
	checkConsistent(t, r)
	if acked.tenants == nil {
		return false
	}
	// Whoever has just run the next step on the recovered registry proves both:
	// that all before it is there, and that it was done wholly or not at all.
	state := acked.clone()
	script := crashScript(r, state)
	for i := acked.step; i < len(script); i++ {
		before := state.clone()
		err := script[i]()
		if i == acked.step && wasDone(err) {
			*state, err = *before, nil
			doneBefore = true
			noErr(t, adopt(r, state))
		}
		if err != nil {
			t.Fatalf("step %d after the crash: %v", i, err)
		}
	}
	checkConsistent(t, r)
	if len(slices.Compact(slices.Sorted(slices.Values(state.numbers)))) != len(state.numbers) {
		t.Errorf("a number was given twice: %v", state.numbers)
	}
	for name, num := range state.subs {
		s, err := r.SubscriberByNum(num)
		if err != nil || s.Signing[0].Secrets[0].Value != crashSecret {
			t.Errorf("subscriber %s: %v", name, err)
		}
	}
	for id, body := range state.docs {
		if d, err := r.GetDoc(DocKey{Kind: "k", ID: id}); err != nil || string(d.Body) != body {
			t.Errorf("document %s: %q, %v", id, d.Body, err)
		}
	}
	if tenants, subs, err := r.Registered(); err != nil || tenants != 2 || subs != 3 {
		t.Errorf("%d tenants, %d subscribers, %v; want 2, 3", tenants, subs, err)
	}
	return doneBefore
}

// wasDone reports whether the step that ran when the crash came had been done.
func wasDone(err error) bool {
	return errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) || errors.Is(err, errCleanedBefore) ||
		errors.Is(err, delivery.ErrNoSubscriber) || errors.Is(err, delivery.ErrNoTenant)
}

// adopt takes what the registry lists for what was acknowledged.
func adopt(r *Registry, s *registryState) error {
	tenants, _, err := r.ListTenants("", MaxPage)
	if err != nil {
		return err
	}
	clear(s.tenants)
	clear(s.subs)
	for _, row := range tenants {
		tenant := row.Value
		s.tenants[tenant.ID] = tenant.Num
		subs, _, err := r.ListSubscribers(tenant.Num, "", MaxPage)
		if err != nil {
			return err
		}
		for _, row := range subs {
			if row.Err != nil {
				return row.Err
			}
			s.subs[tenant.ID+"/"+row.Value.ID] = row.Value.Num
			if !slices.Contains(s.numbers, row.Value.Num) {
				s.numbers = append(s.numbers, row.Value.Num)
			}
		}
	}
	return nil
}

// checkConsistent compares the registry's redundant rows with each other: lists,
// records, index, sizes, counters.
func checkConsistent(t *testing.T, r *Registry) {
	t.Helper()
	tenants, subs, err := r.Registered()
	noErr(t, err)
	c, err := loadCounters(r.kv.db)
	noErr(t, err)
	list, _, err := r.ListTenants("", MaxPage)
	noErr(t, err)
	var listed uint64
	for _, row := range list {
		noErr(t, row.Err)
		listed += checkTenantRows(t, r, row.Value, c)
	}
	if uint64(len(list)) != tenants || listed != subs {
		t.Errorf("%d tenants and %d subscribers are listed, %d and %d are counted", len(list), listed, tenants, subs)
	}
}

func checkTenantRows(t *testing.T, r *Registry, tenant *delivery.Tenant, c counters) uint64 {
	t.Helper()
	if tenant.Num > c.tenant {
		t.Errorf("tenant %d is above the counter %d", tenant.Num, c.tenant)
	}
	var patterns, reserving int
	page, _, err := r.ListSubscribers(tenant.Num, "", MaxPage)
	noErr(t, err)
	for _, row := range page {
		noErr(t, row.Err)
		s := row.Value
		if s.Num > c.subscriber || s.Tenant != tenant.Num {
			t.Errorf("subscriber %d of tenant %d; counter %d", s.Num, s.Tenant, c.subscriber)
		}
		patterns += len(s.Topics)
		if s.Reserved > 0 {
			reserving++
		}
		found, err := patternsOf(r.kv.db, tenant.Num, s.Num)
		noErr(t, err)
		if !slices.Equal(slices.Sorted(slices.Values(s.Topics)), found) {
			t.Errorf("subscriber %s: index has %q, record %q", s.ID, found, s.Topics)
		}
	}
	rows := 0
	prefix := keyTopics(tenant.Num)
	noErr(t, scan(r.kv.db, prefix, keyAfter(prefix), MaxPage, func(_, _ []byte) error { rows++; return nil }))
	if rows != patterns {
		t.Errorf("tenant %s: %d index rows for %d patterns", tenant.ID, rows, patterns)
	}
	rows, prefix = 0, keyReservingOf(tenant.Num)
	noErr(t, scan(r.kv.db, prefix, keyAfter(prefix), MaxPage, func(_, _ []byte) error { rows++; return nil }))
	if rows != reserving {
		t.Errorf("tenant %s: %d subscribers are in the index of reservations, %d reserve", tenant.ID, rows, reserving)
	}
	if size, err := r.TenantSize(tenant.Num); err != nil || size != uint64(len(page)) {
		t.Errorf("tenant %s counts %d, lists %d, %v", tenant.ID, size, len(page), err)
	}
	return uint64(len(page))
}

// A write whose sync fails must not be called durable, and nothing after it.
func TestAFailedSyncIsAnErrorAndStopsTheStore(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var broken sync.Map
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if _, on := broken.Load("on"); on && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errors.New("the disk is gone")
		}
		return nil
	}))
	key := NewNodeKey()
	r, err := openTestRegistry(fs, key, nil)
	noErr(t, err)
	_, err = r.PutTenant(delivery.Tenant{ID: "safe"}, MustNotExist)
	noErr(t, err)
	broken.Store("on", true)
	told := 0
	defer r.Watch(func([]Change) { told++ })()
	_, err = r.PutTenant(delivery.Tenant{ID: "lost"}, MustNotExist)
	wantErr(t, err, delivery.ErrNotReady)
	if told != 1 {
		t.Errorf("caches were told %d times of a change that is visible, want 1", told)
	}
	// What is visible may not survive, so nothing is shown any more.
	_, err = r.GetTenant("lost")
	wantErr(t, err, delivery.ErrNotReady)
	_, err = r.Match(1, "x", nil)
	wantErr(t, err, delivery.ErrNotReady)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	broken.Delete("on")
	_ = r.kv.db.Close() // it may complain about its log
	r, err = openTestRegistry(after, key, nil)
	noErr(t, err)
	defer r.kv.db.Close()
	_, err = r.GetTenant("safe")
	noErr(t, err)
	_, err = r.GetTenant("lost")
	wantErr(t, err, delivery.ErrNoTenant)
}
