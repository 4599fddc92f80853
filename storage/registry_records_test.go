package storage

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestTenantsAreCreatedReplacedAndFound(t *testing.T) {
	b := newRegistryBench(t)
	made, err := b.PutTenant(delivery.Tenant{ID: "acme", Name: "Acme", Weight: 2, Num: 77, Version: 9}, MustNotExist)
	noErr(t, err)
	if made.Num != 1 || made.Version != 1 || made.CreatedAt.IsZero() || !made.CreatedAt.Equal(made.UpdatedAt) {
		t.Errorf("made %+v", made)
	}
	got, err := b.GetTenant("acme")
	noErr(t, err)
	if !reflect.DeepEqual(got, made) {
		t.Errorf("got %+v, want %+v", got, made)
	}
	changed, err := b.PutTenant(delivery.Tenant{ID: "acme", Name: "Acme 2"}, 1)
	noErr(t, err)
	if changed.Num != made.Num || changed.Version != 2 || changed.Weight != 0 || !changed.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("changed to %+v", changed)
	}
	byNum, err := b.TenantByNum(made.Num)
	noErr(t, err)
	if !reflect.DeepEqual(byNum, changed) {
		t.Errorf("by number %+v, want %+v", byNum, changed)
	}
}

func TestVersionsDecideWhoMayWriteATenant(t *testing.T) {
	for name, tc := range map[string]struct {
		exists bool
		expect uint64
		want   error
	}{
		"create":                   {false, MustNotExist, nil},
		"create over existing":     {true, MustNotExist, ErrExists},
		"any, new":                 {false, AnyVersion, nil},
		"any, existing":            {true, AnyVersion, nil},
		"the version it has":       {true, 1, nil},
		"a version it had not yet": {true, 2, ErrConflict},
		"a version of nothing":     {false, 1, delivery.ErrNoTenant},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRegistryBench(t)
			if tc.exists {
				b.tenant("acme")
			}
			_, err := b.PutTenant(delivery.Tenant{ID: "acme"}, tc.expect)
			wantErr(t, err, tc.want)
		})
	}
}

func TestIDsThatCannotBeInAPathAreRefused(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	for _, id := range []string{"", "a b", "a/b", "a.b", strings.Repeat("x", delivery.MaxNameLen+1), "a\x00"} {
		_, err := b.PutTenant(delivery.Tenant{ID: id}, AnyVersion)
		wantErr(t, err, ErrBadRecord)
		_, err = b.CreateSubscriber(testSubscriber(tenant.Num, id))
		wantErr(t, err, ErrBadRecord)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
}

func TestANumberIsNeverGivenTwice(t *testing.T) {
	b := newRegistryBench(t)
	first := b.tenant("acme")
	sub := b.subscriber(first.Num, "hook", "*")
	_, err := b.DeleteSubscriber(first.Num, "hook", AnyVersion)
	noErr(t, err)
	again := b.subscriber(first.Num, "hook", "*")
	if again.Num <= sub.Num || again.Version != 1 {
		t.Errorf("recreated as %d version %d, was %d", again.Num, again.Version, sub.Num)
	}
	_, err = b.DeleteTenant("acme", AnyVersion)
	noErr(t, err)
	b.reopen()
	second := b.tenant("acme")
	if second.Num <= first.Num {
		t.Errorf("tenant recreated as %d, was %d", second.Num, first.Num)
	}
	third := b.subscriber(second.Num, "hook", "*")
	if third.Num <= again.Num {
		t.Errorf("subscriber recreated as %d, was %d", third.Num, again.Num)
	}
	for _, old := range []delivery.SubscriberNum{sub.Num, again.Num} {
		_, err = b.SubscriberByNum(old)
		wantErr(t, err, delivery.ErrNoSubscriber)
	}
	if got, err := b.Match(first.Num, "a", nil); err != nil || len(got) != 0 {
		t.Errorf("the deleted tenant still matches: %v, %v", got, err)
	}
	if got, err := b.Match(second.Num, "a", nil); err != nil || !slices.Equal(got, []delivery.SubscriberNum{third.Num}) {
		t.Errorf("match %v, %v, want %d", got, err, third.Num)
	}
}

func TestNumbersEndInAnErrorNotInReuse(t *testing.T) {
	b := newRegistryBench(t)
	noErr(t, b.write(func(tx *registryTx) error { tx.counters.tenant = 1<<32 - 2; return nil }))
	b.tenant("last")
	_, err := b.PutTenant(delivery.Tenant{ID: "one-more"}, MustNotExist)
	wantErr(t, err, ErrFull)
}

func TestSubscribersAreFoundByIDAndByNumber(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	in := filledSubscriber()
	in.ID, in.Tenant, in.Status = "hook", tenant.Num, delivery.SubscriberPaused
	made, err := b.CreateSubscriber(in)
	noErr(t, err)
	want := *in
	want.Num, want.Version, want.CreatedAt, want.UpdatedAt = 1, 1, made.CreatedAt, made.UpdatedAt
	if !reflect.DeepEqual(made, &want) {
		t.Errorf("made %+v, want %+v", made, want)
	}
	b.reopen()
	byID, err := b.GetSubscriber(tenant.Num, "hook")
	noErr(t, err)
	byNum, err := b.SubscriberByNum(made.Num)
	noErr(t, err)
	if !reflect.DeepEqual(byID, &want) || !reflect.DeepEqual(byNum, &want) {
		t.Errorf("got %+v and %+v, want %+v", byID, byNum, want)
	}
	_, err = b.GetSubscriber(tenant.Num+1, "hook")
	wantErr(t, err, delivery.ErrNoSubscriber)
	_, err = b.SubscriberByNum(made.Num + 1)
	wantErr(t, err, delivery.ErrNoSubscriber)
}

func TestAnUpdateCannotChangeWhoASubscriberIs(t *testing.T) {
	b := newRegistryBench(t)
	tenant, other := b.tenant("acme"), b.tenant("other")
	made := b.subscriber(tenant.Num, "hook", "a", "b.*")
	got, err := b.UpdateSubscriber(made.Num, 1, func(s *delivery.Subscriber) error {
		s.Num, s.Tenant, s.ID, s.Version, s.CreatedAt = 99, other.Num, "stolen", 99, time.Time{}
		s.URL, s.Topics = "https://new.example/", []string{"b.*", "c"}
		return nil
	})
	noErr(t, err)
	if got.Num != made.Num || got.Tenant != tenant.Num || got.ID != "hook" || got.Version != 2 || !got.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("became %+v", got)
	}
	for topic, want := range map[string]int{"a": 0, "b.x": 1, "c": 1} {
		if m, err := b.Match(tenant.Num, topic, nil); err != nil || len(m) != want {
			t.Errorf("topic %s matches %v, %v; want %d", topic, m, err, want)
		}
	}
	stored, err := b.SubscriberByNum(made.Num)
	noErr(t, err)
	if !reflect.DeepEqual(stored, got) {
		t.Errorf("stored %+v, returned %+v", stored, got)
	}
}

func TestAFailedUpdateLeavesTheRecordAsItWas(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	made := b.subscriber(tenant.Num, "hook", "a")
	refused := errors.New("refused")
	_, err := b.UpdateSubscriber(made.Num, 1, func(s *delivery.Subscriber) error { s.Topics[0] = "b"; return refused })
	wantErr(t, err, refused)
	_, err = b.UpdateSubscriber(made.Num, 7, func(*delivery.Subscriber) error { t.Error("called"); return nil })
	wantErr(t, err, ErrConflict)
	_, err = b.UpdateSubscriber(made.Num, 1, func(s *delivery.Subscriber) error { s.Topics = []string{"x\x00"}; return nil })
	wantErr(t, err, ErrBadRecord)
	_, err = b.UpdateSubscriber(made.Num, 1, func(s *delivery.Subscriber) error { s.Status = delivery.SubscriberDeleted; return nil })
	wantErr(t, err, ErrBadRecord)
	_, err = b.UpdateSubscriber(404, AnyVersion, func(*delivery.Subscriber) error { t.Error("called"); return nil })
	wantErr(t, err, delivery.ErrNoSubscriber)
	got, err := b.SubscriberByNum(made.Num)
	noErr(t, err)
	if !reflect.DeepEqual(got, made) {
		t.Errorf("got %+v, want %+v", got, made)
	}
}

func TestACallerCannotChangeWhatIsStoredThroughMemory(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	in := testSubscriber(tenant.Num, "hook", "a")
	made, err := b.CreateSubscriber(in)
	noErr(t, err)
	in.Signing[0].Secrets[0].Value = "changed"
	if made.Signing[0].Secrets[0].Value == "changed" {
		t.Error("the returned value shares memory with the given one")
	}
	var kept *delivery.Subscriber
	got, err := b.UpdateSubscriber(made.Num, 1, func(s *delivery.Subscriber) error { kept = s; return nil })
	noErr(t, err)
	kept.Topics[0] = "changed"
	if got.Topics[0] == "changed" {
		t.Error("the returned value shares memory with what change was given")
	}
}

func TestListsComeInPagesInTheOrderOfIDs(t *testing.T) {
	b := newRegistryBench(t)
	tenant, other := b.tenant("t-5"), b.tenant("t-6")
	b.subscriber(other.Num, "not-mine")
	var subs []*delivery.Subscriber
	var want []string
	for i := range 257 {
		id := fmt.Sprintf("s-%03d", (i*101)%257)
		subs = append(subs, testSubscriber(tenant.Num, id))
		want = append(want, id)
	}
	slices.Sort(want)
	_, err := b.CreateSubscribers(subs)
	noErr(t, err)
	for _, size := range []int{1, 7, 100, 257, 258, 1000} {
		var got []string
		after, pages := "", 0
		for {
			page, next, err := b.ListSubscribers(tenant.Num, after, size)
			noErr(t, err)
			if len(page) > size {
				t.Fatalf("page of %d, asked for %d", len(page), size)
			}
			for _, row := range page {
				noErr(t, row.Err)
				got = append(got, row.Value.ID)
			}
			pages++
			if next == "" {
				break
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d gave %d rows, want %d", size, len(got), len(want))
		}
		if most := len(want)/size + 1; pages > most {
			t.Errorf("pages of %d: %d pages, want at most %d", size, pages, most)
		}
	}
	if page, _, _ := b.ListSubscribers(tenant.Num, "", 0); len(page) != DefaultPage {
		t.Errorf("default page has %d rows", len(page))
	}
	if page, next, err := b.ListSubscribers(tenant.Num, "zzz", 10); err != nil || len(page) != 0 || next != "" {
		t.Errorf("past the end: %v, %q, %v", page, next, err)
	}
	tenants, next, err := b.ListTenants("t-5", 10)
	if err != nil || next != "" || len(tenants) != 1 || tenants[0].Value.ID != "t-6" {
		t.Errorf("tenants after t-5: %+v, %q, %v", tenants, next, err)
	}
	_, _, err = b.ListSubscribers(99, "", 10)
	wantErr(t, err, delivery.ErrNoTenant)
}

// A page that is full to the last row must not promise another one.
func TestTheLastFullPageIsTheLast(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	for i := range 4 {
		b.subscriber(tenant.Num, fmt.Sprint("s", i))
	}
	_, next, err := b.ListSubscribers(tenant.Num, "", 4)
	if err != nil || next != "" {
		t.Errorf("next is %q, %v", next, err)
	}
	_, next, err = b.ListSubscribers(tenant.Num, "", 3)
	if err != nil || next != "s2" {
		t.Errorf("next is %q, %v; want s2", next, err)
	}
}

// damage overwrites a stored value behind the registry's back.
func (b *registryBench) damage(key, value []byte) {
	b.tb.Helper()
	noErr(b.tb, b.kv.db.Set(key, value, pebble.Sync))
}

// Q8: one row under a lost key: the list works, and that row reports the error.
func testOneRowUnderALostKey(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	for _, id := range []string{"a", "b", "c", "d"} {
		b.subscriber(tenant.Num, id, "*")
	}
	lost, err := b.GetSubscriber(tenant.Num, "b")
	noErr(t, err)
	key := keyOfSubscriber(regSubscriber, lost.Num)
	value, err := encodeSubscriber(lost, testSealer(t, NewNodeKey()), key)
	noErr(t, err)
	b.damage(key, value)
	c, err := b.GetSubscriber(tenant.Num, "c")
	noErr(t, err)
	b.damage(keyOfSubscriber(regSubscriber, c.Num), []byte{9})

	page, next, err := b.ListSubscribers(tenant.Num, "", 10)
	if err != nil || next != "" || len(page) != 4 {
		t.Fatalf("list of %d rows, %q, %v", len(page), next, err)
	}
	for i, want := range []error{nil, ErrWrongKey, ErrDamaged, nil} {
		wantErr(t, page[i].Err, want)
		if want == nil {
			noErr(t, page[i].Err)
		}
		if v := page[i].Value; v == nil || v.ID != string(rune('a'+i)) || v.Num == 0 || v.Tenant != tenant.Num {
			t.Errorf("row %d is %+v", i, v)
		}
	}
	if got := page[1].Value; got.URL != "https://h.example" || len(got.Topics) != 1 {
		t.Errorf("the open part of the lost row is %+v", got)
	}
	// Changing the lost row would lose its secrets for good.
	_, err = b.UpdateSubscriber(lost.Num, AnyVersion, func(*delivery.Subscriber) error { return nil })
	wantErr(t, err, ErrWrongKey)
	// Deleting both is the way out, and leaves nothing in the index.
	for _, id := range []string{"b", "c"} {
		_, err = b.DeleteSubscriber(tenant.Num, id, AnyVersion)
		noErr(t, err)
	}
	if got, err := b.Match(tenant.Num, "x", nil); err != nil || len(got) != 2 {
		t.Errorf("index has %v, %v", got, err)
	}
	if size, err := b.TenantSize(tenant.Num); err != nil || size != 2 {
		t.Errorf("tenant counts %d, %v", size, err)
	}
}

func TestADamagedTenantIsListedAndCanBeDeleted(t *testing.T) {
	b := newRegistryBench(t)
	b.tenant("a")
	bad := b.tenant("b")
	b.subscriber(bad.Num, "hook", "*")
	b.damage(keyOfTenant(regTenant, bad.Num), []byte{1, '{'})
	page, _, err := b.ListTenants("", 10)
	if err != nil || len(page) != 2 || page[0].Err != nil || !errors.Is(page[1].Err, ErrDamaged) || page[1].Value.ID != "b" {
		t.Fatalf("list: %+v, %v", page, err)
	}
	_, err = b.PutTenant(delivery.Tenant{ID: "b"}, AnyVersion)
	wantErr(t, err, ErrDamaged)
	_, err = b.DeleteTenant("b", 1)
	wantErr(t, err, ErrDamaged)
	_, err = b.DeleteTenant("b", AnyVersion)
	noErr(t, err)
	gone, err := b.DeletedTenants(0, 10)
	if err != nil || len(gone) != 1 || gone[0].Num != bad.Num || gone[0].ID != "" {
		t.Errorf("deleted tenants: %+v, %v", gone, err)
	}
	members, err := b.Members(bad.Num, 10)
	noErr(t, err)
	noErr(t, b.MembersCleaned(bad.Num, members))
	noErr(t, b.TenantCleaned(bad.Num))
}

func TestDeletingNeedsTheVersionItWasToldAndSomethingThere(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	b.subscriber(tenant.Num, "hook")
	_, err := b.DeleteTenant("nobody", AnyVersion)
	wantErr(t, err, delivery.ErrNoTenant)
	_, err = b.DeleteTenant("acme", 2)
	wantErr(t, err, ErrConflict)
	_, err = b.DeleteSubscriber(tenant.Num, "nobody", AnyVersion)
	wantErr(t, err, delivery.ErrNoSubscriber)
	_, err = b.DeleteSubscriber(tenant.Num+1, "hook", AnyVersion)
	wantErr(t, err, delivery.ErrNoTenant)
	_, err = b.DeleteSubscriber(tenant.Num, "hook", 2)
	wantErr(t, err, ErrConflict)
	num, err := b.DeleteSubscriber(tenant.Num, "hook", 1)
	if err != nil || num != 1 {
		t.Errorf("deleted %d, %v", num, err)
	}
	_, err = b.DeleteSubscriber(tenant.Num, "hook", AnyVersion)
	wantErr(t, err, delivery.ErrNoSubscriber)
}
