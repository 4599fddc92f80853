package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// randomTopic makes topics and patterns from few letters, so that they meet,
// with the odd shapes that a publisher may send.
func randomTopic(rng *rand.Rand) string {
	segments := []string{"a", "b", "order", "dispatcher", "", "*", "ab", "é"}
	parts := make([]string, 1+rng.IntN(4))
	for i := range parts {
		parts[i] = segments[rng.IntN(len(segments))]
	}
	return strings.Join(parts, ".")
}

func randomPattern(rng *rand.Rand) string {
	switch rng.IntN(6) {
	case 0:
		return "*"
	case 1:
		return randomTopic(rng)
	case 2:
		return randomTopic(rng) + "*"
	}
	return randomTopic(rng) + ".*"
}

func TestIndexAgreesWithMatchTopic(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	b := newRegistryBench(t)
	tenant, other := b.tenant("acme"), b.tenant("other")
	var subs []*delivery.Subscriber
	for i := range 300 {
		s := testSubscriber(tenant.Num, fmt.Sprint("s", i))
		s.Status = delivery.SubscriberStatus(i % 3) // active, paused, disabled
		for range rng.IntN(4) {
			s.Topics = append(s.Topics, randomPattern(rng))
		}
		subs = append(subs, s)
	}
	subs, err := b.CreateSubscribers(subs)
	noErr(t, err)
	b.subscriber(other.Num, "all", "*", "dispatcher.*")
	check := func() {
		t.Helper()
		for range 300 {
			topic := randomTopic(rng)
			var want []delivery.SubscriberNum
			for _, s := range subs {
				if slices.ContainsFunc(s.Topics, func(p string) bool { return delivery.MatchTopic(p, topic) }) {
					want = append(want, s.Num)
				}
			}
			got, err := b.Match(tenant.Num, topic, nil)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("topic %q: got %v, %v, want %v", topic, got, err, want)
			}
		}
	}
	check()
	for i, s := range subs { // changed in place, deleted, made again
		switch rng.IntN(3) {
		case 0:
			subs[i], err = b.UpdateSubscriber(s.Num, s.Version, func(s *delivery.Subscriber) error {
				s.Topics = []string{randomPattern(rng), randomPattern(rng)}
				return nil
			})
			noErr(t, err)
		case 1:
			_, err = b.DeleteSubscriber(tenant.Num, s.ID, s.Version)
			noErr(t, err)
			subs[i].Topics = nil
		}
	}
	check()
	b.reopen()
	check()
}

func TestPatternsOfATopicAreAllThatCanMatch(t *testing.T) {
	for topic, want := range map[string][]string{
		"order.created":                   {"order.created", "*", "order.*"},
		"a.b.c":                           {"a.b.c", "*", "a.*", "a.b.*"},
		"single":                          {"single", "*"},
		"dispatcher.disabled":             {"dispatcher.disabled", "dispatcher.*"},
		"dispatcher":                      {"dispatcher", "*"},
		"dispatchers.x":                   {"dispatchers.x", "*", "dispatchers.*"},
		"":                                {""},
		"*":                               {"*"},
		"a.*":                             {"a.*", "*"},
		"a.":                              {"a.", "*"},
		".a":                              {".a", "*", ".*"},
		"a..b":                            {"a..b", "*", "a.*", "a..*"},
		"a.\x00.b":                        {"*", "a.*"},
		strings.Repeat("x", MaxPattern+1): {"*"},
	} {
		if got := patternsFor(topic); !slices.Equal(got, want) {
			t.Errorf("%.40q: got %q, want %q", topic, got, want)
		}
	}
}

func FuzzPatternsFor(f *testing.F) {
	f.Add("order.*", "order.created")
	f.Add("*", "dispatcher.x")
	f.Add("a.*", "a.\x00")
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		if checkPatterns([]string{pattern}) != nil {
			return
		}
		patterns := patternsFor(topic)
		if len(patterns) > MaxPattern+2 {
			t.Fatalf("%d patterns", len(patterns))
		}
		if got, want := slices.Contains(patterns, pattern), delivery.MatchTopic(pattern, topic); got != want {
			t.Fatalf("pattern %q, topic %q: index %v, MatchTopic %v", pattern, topic, got, want)
		}
		slices.Sort(patterns)
		if len(slices.Compact(patterns)) != len(patternsFor(topic)) {
			t.Fatalf("topic %q: a pattern is asked for twice", topic)
		}
	})
}

func TestMatchAppendsAndNamesEachOnce(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	b.subscriber(tenant.Num, "every-way", "*", "a.*", "a.b", "a.b.*", "a.b", "a.b.c")
	b.subscriber(tenant.Num, "none")
	got, err := b.Match(tenant.Num, "a.b.c", []delivery.SubscriberNum{42, 1})
	if want := []delivery.SubscriberNum{42, 1, 1}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestPatternsThatAKeyCannotHoldAreRefused(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	for _, p := range []string{"a\x00b", "\xff", strings.Repeat("x", MaxPattern+1)} {
		_, err := b.CreateSubscriber(testSubscriber(tenant.Num, "s", p))
		wantErr(t, err, ErrBadRecord)
	}
	b.subscriber(tenant.Num, "s", strings.Repeat("x", MaxPattern))
}

// A tenant's number at the end of the range must not make its rows run into
// another's.
func TestTenantsNeverMatchEachOthersSubscribers(t *testing.T) {
	b := newRegistryBench(t)
	for _, num := range []delivery.TenantNum{0xFE, 0xFF, 0x100, 0xFFFF, 0xFFFFFF, 0xFFFFFFFE} {
		noErr(t, b.write(func(tx *registryTx) error { tx.counters.tenant = num - 1; return nil }))
		tenant := b.tenant(fmt.Sprint("t", num))
		s := b.subscriber(tenant.Num, "s", "*")
		got, err := b.Match(tenant.Num, "x", nil)
		if tenant.Num != num || err != nil || !slices.Equal(got, []delivery.SubscriberNum{s.Num}) {
			t.Errorf("tenant %d matches %v, %v, want %d", tenant.Num, got, err, s.Num)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	r := newRegistryBench(b)
	tenant := r.tenant("acme")
	for part := range 100 { // 100,000 subscribers beside the three that match
		var subs []*delivery.Subscriber
		for i := range 1000 {
			subs = append(subs, testSubscriber(tenant.Num, fmt.Sprintf("s-%d-%d", part, i), fmt.Sprintf("other-%d.*", i)))
		}
		if _, err := r.CreateSubscribers(subs); err != nil {
			b.Fatal(err)
		}
	}
	for _, p := range []string{"*", "order.*", "order.created"} {
		r.subscriber(tenant.Num, strings.NewReplacer("*", "x", ".", "-").Replace(p), p)
	}
	noErr(b, r.kv.db.Flush())
	var dst []delivery.SubscriberNum
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = r.Match(tenant.Num, "order.created", dst[:0]); err != nil || len(dst) != 3 {
			b.Fatal(dst, err)
		}
	}
}
