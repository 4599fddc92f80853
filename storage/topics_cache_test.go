package storage

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func (b *registryBench) matches(tenant delivery.TenantNum, topic string, want ...delivery.SubscriberNum) {
	b.tb.Helper()
	for range 2 { // from the index, then from memory
		got, err := b.Match(tenant, topic, nil)
		if err != nil || !slices.Equal(got, want) {
			b.tb.Errorf("topic %s matches %v, %v, want %v", topic, got, err, want)
		}
	}
}

func TestARememberedMatchEndsWithTheWriteThatChangesIt(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	b.matches(tenant.Num, "order.created")
	a := b.subscriber(tenant.Num, "a", "order.*")
	b.matches(tenant.Num, "order.created", a.Num)
	_, err := b.UpdateSubscriber(a.Num, 1, func(s *delivery.Subscriber) error { s.Topics = []string{"user.*"}; return nil })
	noErr(t, err)
	b.matches(tenant.Num, "order.created")
	b.matches(tenant.Num, "user.made", a.Num)
	_, err = b.DeleteSubscriber(tenant.Num, "a", AnyVersion)
	noErr(t, err)
	b.matches(tenant.Num, "user.made")
	c := b.subscriber(tenant.Num, "c", "*")
	b.matches(tenant.Num, "user.made", c.Num)
	_, err = b.DeleteTenant("acme", AnyVersion)
	noErr(t, err)
	b.matches(tenant.Num, "user.made")
}

// After a failure the store is opened again without what was never synced.
func TestRememberedMatchesDoNotOutliveTheirDatabase(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	a := b.subscriber(tenant.Num, "a", "*")
	b.matches(tenant.Num, "x", a.Num)
	old, cache := b.kv.db, b.topics
	noErr(t, b.kv.db.Delete(keyTopic(tenant.Num, "*", a.Num), nil)) // behind the registry's back
	b.matches(tenant.Num, "x", a.Num)
	b.reopen()
	b.topics = cache
	if b.kv.db == old {
		t.Fatal("not reopened")
	}
	b.matches(tenant.Num, "x")
}

func TestACallerMayChangeTheAnswerItGot(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	a := b.subscriber(tenant.Num, "a", "*")
	for range 3 {
		got, err := b.Match(tenant.Num, "x", nil)
		noErr(t, err)
		if got[0] != a.Num {
			t.Fatalf("answer is %v", got)
		}
		got[0] = 99
		_ = append(got, 98)
	}
}

func TestTheCacheOfMatchesIsBounded(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	var subs []*delivery.Subscriber
	for i := range topicCacheMatches + 1 {
		subs = append(subs, testSubscriber(tenant.Num, fmt.Sprint("s", i), "all"))
	}
	_, err := b.CreateSubscribers(subs)
	noErr(t, err)
	if got, err := b.Match(tenant.Num, "all", nil); err != nil || len(got) != topicCacheMatches+1 {
		t.Fatalf("%d match, %v", len(got), err)
	}
	_, err = b.Match(tenant.Num, strings.Repeat("x", MaxPattern+1), nil)
	noErr(t, err)
	if n := b.topics.entries.Len(); n != 0 {
		t.Errorf("%d answers are kept that are too large", n)
	}
	for i := range topicCacheSize + 10 {
		b.topics.put(topicKey{tenant.Num, fmt.Sprint(i)}, 0, nil)
	}
	if n := b.topics.entries.Len(); n != topicCacheSize {
		t.Errorf("%d answers are kept, the bound is %d", n, topicCacheSize)
	}
}

// A registration that was answered is matched by every publish after it, also
// while others fill the cache.
func TestARegistrationIsMatchedFromItsAnswerOn(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	var registered atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var dst []delivery.SubscriberNum
			for !stop.Load() {
				least := registered.Load()
				var err error
				if dst, err = b.Match(tenant.Num, "x", dst[:0]); err != nil || int64(len(dst)) < least {
					t.Errorf("%d match after %d were registered, %v", len(dst), least, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		b.subscriber(tenant.Num, fmt.Sprint("s", i), "*")
		registered.Add(1)
	}
	stop.Store(true)
	wg.Wait()
}
