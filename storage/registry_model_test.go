package storage

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// registryModel is the registry as maps.
type registryModel struct {
	tenants map[string]*delivery.Tenant
	subs    map[delivery.TenantNum]map[string]*delivery.Subscriber
	dead    map[delivery.SubscriberNum]bool // ever deleted, alone or with a tenant
	highest delivery.SubscriberNum
}

// TestRandomLivesAgreeWithAModel runs random operations, with restarts, against
// the registry and against maps.
func TestRandomLivesAgreeWithAModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	b := newRegistryBench(t)
	m := &registryModel{
		tenants: map[string]*delivery.Tenant{}, subs: map[delivery.TenantNum]map[string]*delivery.Subscriber{},
		dead: map[delivery.SubscriberNum]bool{},
	}
	for range 250 {
		m.step(t, b, rng)
	}
	m.check(t, b, rng)
	checkConsistent(t, b.Registry)
}

func (m *registryModel) step(t *testing.T, b *registryBench, rng *rand.Rand) {
	t.Helper()
	tenantID := fmt.Sprint("t", rng.IntN(4))
	tenant := m.tenants[tenantID]
	if tenant == nil {
		made, err := b.PutTenant(delivery.Tenant{ID: tenantID}, MustNotExist)
		noErr(t, err)
		m.tenants[tenantID], m.subs[made.Num] = made, map[string]*delivery.Subscriber{}
		return
	}
	subs := m.subs[tenant.Num]
	id := fmt.Sprint("s", rng.IntN(12))
	sub := subs[id]
	switch op := rng.IntN(100); {
	case op < 2:
		b.reopen()
	case op < 4:
		_, err := b.DeleteTenant(tenantID, tenant.Version)
		noErr(t, err)
		for _, s := range subs {
			m.dead[s.Num] = true
		}
		delete(m.tenants, tenantID)
		delete(m.subs, tenant.Num)
	case op < 8:
		changed, err := b.PutTenant(delivery.Tenant{ID: tenantID, Weight: rng.IntN(9)}, tenant.Version)
		noErr(t, err)
		m.tenants[tenantID] = changed
	case op < 50 && sub == nil:
		m.create(t, b, rng, tenant.Num, id)
	case op < 50:
		_, err := b.CreateSubscriber(testSubscriber(tenant.Num, id))
		wantErr(t, err, ErrExists)
	case op < 70 && sub != nil:
		changed, err := b.UpdateSubscriber(sub.Num, sub.Version, func(s *delivery.Subscriber) error {
			s.Topics, s.Reserved = randomPatterns(rng), rng.IntN(3)
			return nil
		})
		noErr(t, err)
		subs[id] = changed
	case op < 85 && sub != nil:
		_, err := b.DeleteSubscriber(tenant.Num, id, sub.Version)
		noErr(t, err)
		m.dead[sub.Num] = true
		delete(subs, id)
	default:
		m.check(t, b, rng)
	}
}

func (m *registryModel) checkReservations(t *testing.T, b *registryBench) {
	t.Helper()
	want := map[delivery.SubscriberNum]int{}
	for _, tenant := range m.tenants {
		for _, s := range m.subs[tenant.Num] {
			if s.Reserved > 0 {
				want[s.Num] = s.Reserved
			}
		}
	}
	list, err := b.Reservations()
	noErr(t, err)
	got := map[delivery.SubscriberNum]int{}
	for _, r := range list {
		got[r.Subscriber] = r.Slots
		if s := m.subs[r.Tenant][r.ID]; s == nil || s.Num != r.Subscriber {
			t.Fatalf("a reservation is listed of %q in tenant %d, which is %+v", r.ID, r.Tenant, s)
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("reservations %v, want %v", got, want)
	}
}

func (m *registryModel) create(t *testing.T, b *registryBench, rng *rand.Rand, tenant delivery.TenantNum, id string) {
	t.Helper()
	given := testSubscriber(tenant, id, randomPatterns(rng)...)
	given.Reserved = rng.IntN(3)
	made, err := b.CreateSubscriber(given)
	noErr(t, err)
	if made.Num <= m.highest {
		t.Fatalf("number %d after %d", made.Num, m.highest)
	}
	m.highest = made.Num
	m.subs[tenant][id] = made
}

func randomPatterns(rng *rand.Rand) []string {
	var out []string
	for range rng.IntN(3) {
		if p := randomPattern(rng); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (m *registryModel) check(t *testing.T, b *registryBench, rng *rand.Rand) {
	t.Helper()
	for _, tenant := range m.tenants {
		subs := m.subs[tenant.Num]
		topic := randomTopic(rng)
		var want []delivery.SubscriberNum
		for _, s := range subs {
			if slices.ContainsFunc(s.Topics, func(p string) bool { return delivery.MatchTopic(p, topic) }) {
				want = append(want, s.Num)
			}
		}
		slices.Sort(want)
		got, err := b.Match(tenant.Num, topic, nil)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("topic %q: %v, %v, want %v", topic, got, err, want)
		}
		page, _, err := b.ListSubscribers(tenant.Num, "", MaxPage)
		noErr(t, err)
		var ids []string
		for _, row := range page {
			noErr(t, row.Err)
			ids = append(ids, row.Value.ID)
			if s := subs[row.Value.ID]; s == nil || s.Version != row.Value.Version || s.Num != row.Value.Num {
				t.Fatalf("%s is listed as %+v, want %+v", row.Value.ID, row.Value, s)
			}
		}
		if want := slices.Sorted(maps.Keys(subs)); !slices.Equal(ids, want) {
			t.Fatalf("listed %v, want %v", ids, want)
		}
	}
	m.checkReservations(t, b)
	for num := range m.dead {
		if _, err := b.SubscriberByNum(num); err == nil {
			t.Fatalf("deleted subscriber %d is there", num)
		}
	}
}
