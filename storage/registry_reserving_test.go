package storage

import (
	"encoding/binary"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestReservationsAreFoundAndGoWithTheirTenant(t *testing.T) {
	b := newRegistryBench(t)
	one, err := b.PutTenant(delivery.Tenant{ID: "one"}, MustNotExist)
	noErr(t, err)
	two, err := b.PutTenant(delivery.Tenant{ID: "two"}, MustNotExist)
	noErr(t, err)
	create := func(tenant delivery.TenantNum, id string, slots int) *delivery.Subscriber {
		s := testSubscriber(tenant, id)
		s.Reserved = slots
		made, err := b.CreateSubscriber(s)
		noErr(t, err)
		return made
	}
	want := func(ids ...string) {
		t.Helper()
		b.reopen()
		list, err := b.Reservations()
		noErr(t, err)
		if len(list) != len(ids) {
			t.Fatalf("reservations %+v, want those of %v", list, ids)
		}
		for i, r := range list {
			if r.ID != ids[i] || r.Slots != 4 {
				t.Errorf("reservation %+v, want 4 of %s", r, ids[i])
			}
		}
	}
	create(one.Num, "plain", 0)
	a := create(one.Num, "a", 4)
	create(two.Num, "b", 4)
	want("a", "b")
	set := func(slots int) {
		_, err := b.UpdateSubscriber(a.Num, AnyVersion, func(s *delivery.Subscriber) error { s.Reserved = slots; return nil })
		noErr(t, err)
	}
	set(0)
	want("b")
	set(4)
	want("a", "b")
	_, err = b.DeleteTenant("two", AnyVersion)
	noErr(t, err)
	want("a")
	_, err = b.DeleteSubscriber(one.Num, "a", AnyVersion)
	noErr(t, err)
	want()
}

// A record that a release without reservations has written, as it stands on a
// disk: it is read, and reserves nothing, also when an index row was left behind.
func TestARecordWithoutReservationsIsReadAndReservesNothing(t *testing.T) {
	b := newRegistryBench(t)
	tenant, err := b.PutTenant(delivery.Tenant{ID: "t"}, MustNotExist)
	noErr(t, err)
	s := testSubscriber(tenant.Num, "s")
	s.Reserved = 3
	made, err := b.CreateSubscriber(s)
	noErr(t, err)

	const open = `{"id":"s","tenant":1,"version":7,"origin":"https://a.test","topics":["*"],"concurrency":8,` +
		`"retry":{},"timeout":15000000000,"priority":1,"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}`
	old := binary.AppendUvarint([]byte{1}, uint64(len(open)))
	old = append(old, open...)
	noErr(t, b.kv.db.Set(keyOfSubscriber(regSubscriber, made.Num), old, nil))

	got, err := b.SubscriberByNum(made.Num)
	noErr(t, err)
	if got.Version != 7 || got.Concurrency != 8 || got.Reserved != 0 {
		t.Errorf("the record reads as %+v", got)
	}
	if list, err := b.Reservations(); err != nil || len(list) != 0 {
		t.Errorf("it reserves %+v, %v", list, err)
	}
}
