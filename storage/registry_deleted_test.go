package storage

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// rows counts what is stored under the registry's prefixes, the counters and
// the seal check left out.
func (b *registryBench) rows() int {
	b.tb.Helper()
	n := 0
	for _, prefix := range [][]byte{{prefixConfig}, {prefixIndex}} {
		it, err := b.kv.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
		noErr(b.tb, err)
		for valid := it.First(); valid; valid = it.Next() {
			if k := it.Key(); k[0] == prefixConfig && (k[1] == regCounters || k[1] == regSealCheck) {
				continue
			}
			n++
		}
		noErr(b.tb, it.Close())
	}
	return n
}

func TestADeletedSubscriberWaitsToBeCleanedAcrossRestarts(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	var nums []delivery.SubscriberNum
	for i := range 5 {
		s := b.subscriber(tenant.Num, fmt.Sprint("s", i), "*")
		nums = append(nums, s.Num)
		if i < 4 {
			_, err := b.DeleteSubscriber(tenant.Num, s.ID, AnyVersion)
			noErr(t, err)
		}
	}
	b.reopen()
	first, err := b.DeletedSubscribers(0, 3)
	noErr(t, err)
	rest, err := b.DeletedSubscribers(first[len(first)-1].Num, 3)
	noErr(t, err)
	var got []delivery.SubscriberNum
	for _, d := range append(first, rest...) {
		if d.Tenant != tenant.Num || d.ID == "" || d.At.IsZero() {
			t.Errorf("listed as %+v", d)
		}
		got = append(got, d.Num)
	}
	if !slices.Equal(got, nums[:4]) {
		t.Errorf("listed %v, want %v", got, nums[:4])
	}
	for range 2 { // a second call, as after a crash, does no harm
		noErr(t, b.SubscriberCleaned(nums[1]))
	}
	noErr(t, b.SubscriberCleaned(nums[4])) // one that exists is not touched
	b.reopen()
	left, err := b.DeletedSubscribers(0, 10)
	if err != nil || len(left) != 3 {
		t.Errorf("%d are left, %v; want 3", len(left), err)
	}
	_, err = b.SubscriberByNum(nums[4])
	noErr(t, err)
}

func TestADeletedSubscriberLeavesNoSecret(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	s := b.subscriber(tenant.Num, "hook", "*")
	_, err := b.DeleteSubscriber(tenant.Num, "hook", AnyVersion)
	noErr(t, err)
	value, err := subscriberValue(b.kv.db, s.Num)
	noErr(t, err)
	_, sealed, err := splitSubscriber(s.Num, value)
	if err != nil || len(sealed) != 0 {
		t.Errorf("%d sealed bytes are left, %v", len(sealed), err)
	}
}

// A timeline names a subscriber for as long as it is kept, so who it was must
// stay known for as long.
func TestADeletedSubscriberIsIdentifiedUntilItIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRegistryBench(t)
		tenant := b.tenant("acme")
		empty := b.rows()
		s := b.subscriber(tenant.Num, "hook", "*", "order.*")
		deletedAt := time.Now()
		_, err := b.DeleteSubscriber(tenant.Num, "hook", AnyVersion)
		noErr(t, err)
		later := deletedAt.Add(time.Hour)
		if n, err := b.ForgetSubscribers(later, 10); err != nil || n != 0 {
			t.Errorf("forgot %d that are not cleaned, %v", n, err)
		}
		noErr(t, b.SubscriberCleaned(s.Num))
		if n, err := b.ForgetSubscribers(deletedAt, 10); err != nil || n != 0 {
			t.Errorf("forgot %d too early, %v", n, err)
		}
		owner, id, err := b.Identify(s.Num)
		if err != nil || owner != tenant.Num || id != "hook" {
			t.Errorf("identified as %d %q, %v", owner, id, err)
		}
		if n, err := b.ForgetSubscribers(later, 10); err != nil || n != 1 {
			t.Errorf("forgot %d, %v; want 1", n, err)
		}
		_, _, err = b.Identify(s.Num)
		wantErr(t, err, delivery.ErrNoSubscriber)
		// The tenant's size, now zero, is the one row more.
		if n := b.rows(); n != empty+1 {
			t.Errorf("%d rows are left, want %d", n, empty+1)
		}
		b.close()
	})
}

func TestADeletedTenantTakesEverythingWithItAtOnce(t *testing.T) {
	b := newRegistryBench(t)
	keep := b.tenant("keep")
	kept := b.subscriber(keep.Num, "hook", "*")
	_, err := b.PutDoc(DocKey{keep.Num, "source", "stripe"}, []byte("x"), MustNotExist, false)
	noErr(t, err)
	rowsBefore := b.rows()

	gone := b.tenant("gone")
	alone := b.subscriber(gone.Num, "deleted-before", "*")
	_, err = b.DeleteSubscriber(gone.Num, "deleted-before", AnyVersion)
	noErr(t, err)
	var subs []*delivery.Subscriber
	for i := range 300 {
		subs = append(subs, testSubscriber(gone.Num, fmt.Sprint("s", i), "*", "order.*"))
	}
	subs = append(subs, testSubscriber(gone.Num, "deleted-before", "*")) // the id again
	made, err := b.CreateSubscribers(subs)
	noErr(t, err)
	doc := DocKey{gone.Num, "source", "stripe"}
	_, err = b.PutDoc(doc, []byte("x"), MustNotExist, true)
	noErr(t, err)

	num, err := b.DeleteTenant("gone", 1)
	if err != nil || num != gone.Num {
		t.Fatalf("deleted %d, %v", num, err)
	}
	b.reopen()
	_, err = b.GetTenant("gone")
	wantErr(t, err, delivery.ErrNoTenant)
	_, err = b.TenantByNum(gone.Num)
	wantErr(t, err, delivery.ErrNoTenant)
	_, err = b.SubscriberByNum(made[0].Num)
	wantErr(t, err, delivery.ErrNoSubscriber)
	_, err = b.GetSubscriber(gone.Num, "s0")
	wantErr(t, err, delivery.ErrNoSubscriber)
	_, err = b.CreateSubscriber(testSubscriber(gone.Num, "late"))
	wantErr(t, err, delivery.ErrNoTenant)
	_, err = b.UpdateSubscriber(made[0].Num, AnyVersion, func(*delivery.Subscriber) error { return nil })
	wantErr(t, err, delivery.ErrNoSubscriber)
	_, err = b.GetDoc(doc)
	wantErr(t, err, ErrNoDoc)
	_, err = b.PutDoc(doc, nil, AnyVersion, false)
	wantErr(t, err, delivery.ErrNoTenant)
	if m, err := b.Match(gone.Num, "order.x", nil); err != nil || len(m) != 0 {
		t.Errorf("still matches %d, %v", len(m), err)
	}
	if tenants, n, err := b.Registered(); err != nil || tenants != 1 || n != 1 {
		t.Errorf("%d tenants, %d subscribers, %v; want 1, 1", tenants, n, err)
	}
	cleanTenant(t, b, gone.Num, len(made))
	noErr(t, b.SubscriberCleaned(alone.Num))
	if _, err := b.ForgetSubscribers(time.Now().Add(time.Hour), 10); err != nil {
		t.Error(err)
	}
	if n := b.rows(); n != rowsBefore {
		t.Errorf("%d rows are left, want %d", n, rowsBefore)
	}
	if m, err := b.Match(keep.Num, "x", nil); err != nil || !slices.Equal(m, []delivery.SubscriberNum{kept.Num}) {
		t.Errorf("the other tenant matches %v, %v", m, err)
	}
	if _, err := b.GetDoc(DocKey{keep.Num, "source", "stripe"}); err != nil {
		t.Error(err)
	}
}

// cleanTenant does what the background task does, with a restart in the middle.
func cleanTenant(t *testing.T, b *registryBench, num delivery.TenantNum, want int) {
	t.Helper()
	gone, err := b.DeletedTenants(0, 10)
	if err != nil || len(gone) != 1 || gone[0].Num != num || gone[0].ID != "gone" || gone[0].At.IsZero() {
		t.Fatalf("deleted tenants: %+v, %v", gone, err)
	}
	wantErr(t, b.TenantCleaned(num), ErrBadRecord) // not before its subscribers
	cleaned := 0
	for {
		members, err := b.Members(num, 100)
		noErr(t, err)
		if len(members) == 0 {
			break
		}
		for range 2 {
			noErr(t, b.MembersCleaned(num, members))
		}
		cleaned += len(members)
		b.reopen()
	}
	if cleaned != want {
		t.Errorf("cleaned %d subscribers, want %d", cleaned, want)
	}
	for range 2 {
		noErr(t, b.TenantCleaned(num))
	}
	if left, err := b.DeletedTenants(0, 10); err != nil || len(left) != 0 {
		t.Errorf("deleted tenants left: %+v, %v", left, err)
	}
}

func TestWhatExistsCannotBeCleaned(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	s := b.subscriber(tenant.Num, "hook", "*")
	before := b.rows()
	wantErr(t, b.TenantCleaned(tenant.Num), ErrBadRecord)
	wantErr(t, b.MembersCleaned(tenant.Num, []Member{{s.Num, s.ID}}), ErrBadRecord)
	noErr(t, b.SubscriberCleaned(s.Num))
	if n := b.rows(); n != before {
		t.Errorf("%d rows, want %d", n, before)
	}
}
