package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// registryBench is a registry over a store in memory that can be opened again.
type registryBench struct {
	*Registry
	fs   vfs.FS
	key  NodeKey
	tb   testing.TB
	opts func(*pebble.Options)
}

func newRegistryBench(tb testing.TB) *registryBench {
	tb.Helper()
	b := &registryBench{fs: vfs.NewMem(), key: NewNodeKey(), tb: tb}
	b.open()
	tb.Cleanup(b.close)
	return b
}

func (b *registryBench) open() {
	b.tb.Helper()
	r, err := openTestRegistry(b.fs, b.key, b.opts)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.Registry = r
}

func (b *registryBench) close() {
	if b.kv.db != nil {
		if err := b.kv.db.Close(); err != nil {
			b.tb.Error(err)
		}
		b.kv.db = nil
	}
}

func (b *registryBench) reopen() {
	b.tb.Helper()
	b.close()
	b.open()
}

// openTestRegistry opens a registry without the rest of the store. Nothing is
// compressed, so that a search for plain text in its files finds what is there.
func openTestRegistry(fs vfs.FS, key NodeKey, change func(*pebble.Options)) (*Registry, error) {
	opts := &pebble.Options{
		FS: fs, Logger: quietPebble{}, FormatMajorVersion: pebble.FormatNewest,
		MemTableSize: 1 << 20,
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	if change != nil {
		change(opts)
	}
	db, err := pebble.Open("db", opts)
	if err != nil {
		return nil, err
	}
	k := &kv{log: slog.New(slog.DiscardHandler), db: db}
	r, err := newRegistry(k, key)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// quietPebble does not end the process: the tests make the log fail.
type quietPebble struct{}

func (quietPebble) Infof(string, ...any)  {}
func (quietPebble) Errorf(string, ...any) {}
func (quietPebble) Fatalf(string, ...any) {}

func (b *registryBench) tenant(id string) *delivery.Tenant {
	b.tb.Helper()
	t, err := b.PutTenant(delivery.Tenant{ID: id}, MustNotExist)
	if err != nil {
		b.tb.Fatal(err)
	}
	return t
}

func testSubscriber(tenant delivery.TenantNum, id string, topics ...string) *delivery.Subscriber {
	return &delivery.Subscriber{
		Tenant: tenant, ID: id, URL: "https://h.example/" + id, Topics: topics,
		Signing: []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_of_" + id}}}},
	}
}

func (b *registryBench) subscriber(tenant delivery.TenantNum, id string, topics ...string) *delivery.Subscriber {
	b.tb.Helper()
	s, err := b.CreateSubscriber(testSubscriber(tenant, id, topics...))
	if err != nil {
		b.tb.Fatal(err)
	}
	return s
}

func wantErr(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("got error %v, want %v", err, want)
	}
}

func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestTheWrongNodeKeyIsFoundAtOpen(t *testing.T) {
	b := newRegistryBench(t)
	b.close()
	_, err := openTestRegistry(b.fs, NewNodeKey(), nil)
	wantErr(t, err, ErrWrongKey)
	b.open() // and the right one still opens it
}

func TestStoreKnowsWhetherItNeedsItsNodeKey(t *testing.T) {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Logger: quietPebble{}})
	noErr(t, err)
	defer db.Close()
	k := &kv{log: slog.New(slog.DiscardHandler), db: db}
	sealed, err := isSealed(k)
	if err != nil || sealed {
		t.Errorf("new store: sealed %v, %v", sealed, err)
	}
	_, err = newRegistry(k, NewNodeKey())
	noErr(t, err)
	sealed, err = isSealed(k)
	if err != nil || !sealed {
		t.Errorf("opened store: sealed %v, %v", sealed, err)
	}
}

func TestWatchersHearOfEveryDurableChange(t *testing.T) {
	b := newRegistryBench(t)
	var heard []Change
	stop := b.Watch(func(cs []Change) { heard = append(heard, cs...) })
	tenant := b.tenant("acme")
	sub := b.subscriber(tenant.Num, "a", "*")
	_, err := b.UpdateSubscriber(sub.Num, AnyVersion, func(s *delivery.Subscriber) error { s.Timeout = 1; return nil })
	noErr(t, err)
	doc := DocKey{Tenant: tenant.Num, Kind: "source", ID: "stripe"}
	_, err = b.PutDoc(doc, []byte("x"), MustNotExist, false)
	noErr(t, err)
	noErr(t, b.DeleteDoc(doc, AnyVersion))
	_, err = b.DeleteSubscriber(tenant.Num, "a", AnyVersion)
	noErr(t, err)
	_, err = b.DeleteTenant("acme", AnyVersion)
	noErr(t, err)
	stop()
	b.tenant("other")
	want := []Change{
		{Tenant: tenant.Num},
		{Tenant: tenant.Num, Subscriber: sub.Num},
		{Tenant: tenant.Num, Subscriber: sub.Num},
		{Tenant: tenant.Num, Doc: doc},
		{Tenant: tenant.Num, Doc: doc, Deleted: true},
		{Tenant: tenant.Num, Subscriber: sub.Num, Deleted: true},
		{Tenant: tenant.Num, Deleted: true},
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %+v\nwant %+v", heard, want)
	}
}

func TestAWatcherSeesTheChangeItIsToldOf(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	var seen []uint64
	defer b.Watch(func(cs []Change) {
		for _, c := range cs {
			s, err := b.SubscriberByNum(c.Subscriber)
			noErr(t, err)
			seen = append(seen, s.Version)
		}
	})()
	sub := b.subscriber(tenant.Num, "a")
	for range 3 {
		_, err := b.UpdateSubscriber(sub.Num, AnyVersion, func(*delivery.Subscriber) error { return nil })
		noErr(t, err)
	}
	if want := []uint64{1, 2, 3, 4}; !slices.Equal(seen, want) {
		t.Errorf("saw versions %v, want %v", seen, want)
	}
}

func TestWatchersMayComeAndGoWhileChangesHappen(t *testing.T) {
	b := newRegistryBench(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 20 {
				stop := b.Watch(func([]Change) {})
				_, err := b.PutDoc(DocKey{Kind: "k", ID: fmt.Sprint(i, j)}, nil, AnyVersion, false)
				if err != nil {
					t.Error(err)
				}
				stop()
			}
		})
	}
	wg.Wait()
	if len(b.watchers) != 0 {
		t.Errorf("%d watchers are left", len(b.watchers))
	}
}

func TestARefusedWriteChangesAndTellsNothing(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	b.subscriber(tenant.Num, "taken")
	defer b.Watch(func(cs []Change) { t.Errorf("heard of %+v", cs) })()
	_, err := b.CreateSubscribers([]*delivery.Subscriber{
		testSubscriber(tenant.Num, "fresh", "*"), testSubscriber(tenant.Num, "taken"), testSubscriber(99, "x"),
		testSubscriber(tenant.Num, "twice"), testSubscriber(tenant.Num, "twice"), testSubscriber(tenant.Num, "no spaces"),
	})
	wantErr(t, err, ErrExists)
	wantErr(t, err, delivery.ErrNoTenant)
	wantErr(t, err, ErrBadRecord)
	for _, name := range []string{`"taken"`, `"x"`, `"twice"`, `"no spaces"`} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	_, err = b.GetSubscriber(tenant.Num, "fresh")
	wantErr(t, err, delivery.ErrNoSubscriber)
	if got, err := b.Match(tenant.Num, "a", nil); err != nil || len(got) != 0 {
		t.Errorf("index has %v, %v", got, err)
	}
	if _, n, _ := b.Registered(); n != 1 {
		t.Errorf("%d subscribers are counted, want 1", n)
	}
}

func TestRegistrationsSideBySideAreCountedAndNumberedOnce(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	const writers, each = 8, 25
	nums := make(chan delivery.SubscriberNum, writers*each)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s, err := b.CreateSubscriber(testSubscriber(tenant.Num, fmt.Sprintf("s-%d-%d", w, i), "*"))
				if err != nil {
					t.Error(err)
					return
				}
				nums <- s.Num
			}
		})
	}
	wg.Wait()
	close(nums)
	var all []delivery.SubscriberNum
	for n := range nums {
		all = append(all, n)
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != writers*each {
		t.Errorf("numbers repeat: %v", all)
	}
	got, err := b.Match(tenant.Num, "x", nil)
	if err != nil || !slices.Equal(got, all) {
		t.Errorf("index has %d of %d: %v", len(got), len(all), err)
	}
	if size, err := b.TenantSize(tenant.Num); err != nil || size != writers*each {
		t.Errorf("tenant counts %d, %v", size, err)
	}
}

func TestOneOfManyWritersWinsACompareAndSet(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	sub := b.subscriber(tenant.Num, "a")
	var wg sync.WaitGroup
	results := make(chan error, 10)
	for range 10 {
		wg.Go(func() {
			_, err := b.UpdateSubscriber(sub.Num, sub.Version, func(*delivery.Subscriber) error { return nil })
			results <- err
		})
	}
	wg.Wait()
	close(results)
	won := 0
	for err := range results {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrConflict):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers won", won)
	}
}

func TestNothingIsLostWhenEveryWriterCounts(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	sub := b.subscriber(tenant.Num, "a")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				_, err := b.UpdateSubscriber(sub.Num, AnyVersion, func(s *delivery.Subscriber) error { s.Concurrency++; return nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := b.SubscriberByNum(sub.Num)
	noErr(t, err)
	if got.Concurrency != 80 || got.Version != 81 {
		t.Errorf("concurrency %d, version %d; want 80, 81", got.Concurrency, got.Version)
	}
}

func TestAClosedStoreAnswersInsteadOfPanicking(t *testing.T) {
	b := newRegistryBench(t)
	b.close()
	b.kv.closed = true
	_, err := b.PutTenant(delivery.Tenant{ID: "acme"}, AnyVersion)
	wantErr(t, err, delivery.ErrClosed)
	_, err = b.GetTenant("acme")
	wantErr(t, err, delivery.ErrClosed)
	_, _, err = b.ListTenants("", 0)
	wantErr(t, err, delivery.ErrClosed)
	_, err = b.Match(1, "a", nil)
	wantErr(t, err, delivery.ErrClosed)
	_, err = b.GetDoc(DocKey{Kind: "k", ID: "i"})
	wantErr(t, err, delivery.ErrClosed)
	_, err = b.DeletedTenants(0, 0)
	wantErr(t, err, delivery.ErrClosed)
}
