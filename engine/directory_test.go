package engine

import (
	"errors"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// fakeRecords counts what reaches the store.
type fakeRecords struct {
	tenants map[delivery.TenantNum]*delivery.Tenant
	reads   int
}

func (r *fakeRecords) SubscriberByNum(delivery.SubscriberNum) (*delivery.Subscriber, error) {
	return nil, delivery.ErrNoSubscriber
}

func (r *fakeRecords) TenantByNum(num delivery.TenantNum) (*delivery.Tenant, error) {
	r.reads++
	if t := r.tenants[num]; t != nil {
		return t, nil
	}
	return nil, delivery.ErrNoTenant
}

func (r *fakeRecords) GetTenant(id string) (*delivery.Tenant, error) {
	r.reads++
	for _, t := range r.tenants {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, delivery.ErrNoTenant
}

func TestTenantThatIsMadeAnewIsNotTakenForTheOldOne(t *testing.T) {
	r := &fakeRecords{tenants: map[delivery.TenantNum]*delivery.Tenant{1: {ID: "a", Num: 1}}}
	d, err := newDirectory(r)
	if err != nil {
		t.Fatal(err)
	}
	want := func(num delivery.TenantNum, reads int) {
		t.Helper()
		r.reads = 0
		got, err := d.TenantByID("a")
		if num == 0 {
			if !errors.Is(err, delivery.ErrNoTenant) {
				t.Fatalf("%v, %v", got, err)
			}
		} else if err != nil || got.Num != num {
			t.Fatalf("%+v, %v", got, err)
		}
		if r.reads > reads {
			t.Fatalf("%d reads of the store, want %d", r.reads, reads)
		}
	}
	want(1, 1)
	want(1, 1) // by number
	want(1, 0)
	delete(r.tenants, 1)
	d.forget(1, 0, true)
	want(0, 2)
	r.tenants[2] = &delivery.Tenant{ID: "a", Num: 2}
	want(2, 2)
	want(2, 1)
	want(2, 0)
	// The store was opened again, and a number means something else.
	r.tenants = map[delivery.TenantNum]*delivery.Tenant{2: {ID: "b", Num: 2}, 3: {ID: "a", Num: 3}}
	d.purge()
	want(3, 2)
}
