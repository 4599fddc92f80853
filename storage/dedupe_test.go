package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestAnIDIsRememberedForTheWindowAndNotLonger(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000).UTC()
	for _, c := range []struct {
		window, later time.Duration
		duplicate     bool
	}{
		{4 * day, 0, true},
		{4 * day, 4*day - time.Second, true},
		{4 * day, 4*day + time.Second, false},
		{time.Hour, 59 * time.Minute, true},
		{time.Hour, 61 * time.Minute, false},
		{20 * day, 19 * day, true},
		{20 * day, 21 * day, false},
	} {
		t.Run(fmt.Sprintf("window %v, %v later", c.window, c.later), func(t *testing.T) {
			for _, reopen := range []bool{false, true} {
				b := openBench(t, nil, func(cfg *Config) { cfg.DedupeWindow = c.window })
				first := b.publish(eventAt(start, 1, "a", 1))
				if reopen {
					noErr(t, b.Reopen())
				}
				r := b.publish(eventAt(start.Add(c.later), 2, "a", 1))
				if r.Deduplicated != c.duplicate || c.duplicate && r.Event != first.Event {
					t.Errorf("reopened %v: receipt %+v", reopen, r)
				}
			}
		})
	}
}

func TestIDsOfTenantsAndSourcesDoNotMeet(t *testing.T) {
	b := openBench(t, nil)
	publish := func(tenant delivery.TenantNum, source, id, public string) delivery.Receipt {
		x := b.event(public, 1)
		x.Event.Tenant, x.Dedupe.Source, x.Dedupe.ID = tenant, source, id
		return b.publish(x)
	}
	first := map[string]delivery.Receipt{}
	for _, c := range []struct {
		tenant     delivery.TenantNum
		source, id string
	}{{1, "", "a"}, {2, "", "a"}, {1, "github", "a"}, {1, "git", "huba"}} {
		name := fmt.Sprint(c)
		first[name] = publish(c.tenant, c.source, c.id, "public-"+c.source)
		if first[name].Deduplicated {
			t.Errorf("%s met another", name)
		}
		key, err := b.EventByID(t.Context(), c.tenant, c.source, c.id)
		if err != nil || key != first[name].Event {
			t.Errorf("%s: found %s, %v", name, key, err)
		}
	}
	again := publish(1, "github", "a", "public-github")
	if !again.Deduplicated || again.ID != "public-github" {
		t.Errorf("again: %+v", again)
	}
	_, err := b.EventByID(t.Context(), 1, "", "unknown")
	wantErr(t, err, delivery.ErrEventGone)
}

func TestAnIDThatWeMadeIsTheEventsKey(t *testing.T) {
	b := openBench(t, nil)
	x := b.event("", 1)
	x.Event.ID, x.Dedupe = x.Event.Key.String(), nil
	r := b.publish(x)
	key, err := b.EventByID(t.Context(), 7, "", r.ID)
	if err != nil || key != r.Event {
		t.Errorf("found %s, %v", key, err)
	}
	_, err = b.EventByID(t.Context(), 8, "", r.ID) // another tenant's
	wantErr(t, err, delivery.ErrEventGone)
}

func TestTheSameBodyUnderAnotherIDIsADuplicateWhereTheSourceSaysSo(t *testing.T) {
	b := openBench(t, nil)
	body := sha256.Sum256([]byte("body"))
	publish := func(id string, compare bool) delivery.Receipt {
		x := b.event(id, 1)
		copy(x.Dedupe.Content[:], body[:])
		x.Dedupe.Source, x.Dedupe.Body = "github", compare
		return b.publish(x)
	}
	first := publish("a", true)
	if r := publish("b", true); !r.Deduplicated || r.Event != first.Event {
		t.Errorf("other id, same body: %+v", r)
	}
	if r := publish("c", false); r.Deduplicated {
		t.Errorf("compared although nobody asked: %+v", r)
	}
}

func TestTheIDFilterForgetsNothingAndCostsNoMoreThanItSays(t *testing.T) {
	key := func(bucket uint16, n uint64) dedupeKey {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], n)
		return dedupeKeyOf(bucket, delivery.TenantNum(n%3), sha256.Sum256(b[:]))
	}
	f := newDedupeFilter(3<<17, 3)
	if !f.maybe(key(1, 1)) {
		t.Error("an incomplete filter denies")
	}
	f.complete.Store(true)
	const n = 100_000 // about ten bits each
	for i := range uint64(n) {
		f.add(key(1, i))
	}
	wrong := 0
	for i := range uint64(n) {
		if !f.maybe(key(1, i)) {
			t.Fatalf("key %d was forgotten", i)
		}
		if f.maybe(key(1, n+i)) {
			wrong++
		}
		if f.maybe(key(2, i)) {
			t.Fatal("a bucket knows another's keys")
		}
	}
	if wrong > n/25 {
		t.Errorf("%d of %d unknown keys look known", wrong, n)
	}
	f.add(key(2, 1))
	f.forget(2)
	if len(f.buckets) != 1 || !f.maybe(key(1, 12345678)) {
		t.Errorf("%d buckets after forgetting one of two, of which nothing is known then", len(f.buckets))
	}
	if size := len(f.buckets[2].lines) * 64; size > 1<<17 {
		t.Errorf("a bucket takes %d bytes", size)
	}
}

// TestTheIDFilterIsLoadedFromTheStore: what was published before an opening is
// known after it, also while the filter is being loaded.
func TestTheIDFilterIsLoadedFromTheStore(t *testing.T) {
	b := openBench(t, nil)
	var list []*delivery.Published
	for i := range 3 * filterChunk / 2 {
		list = append(list, eventAt(b.start, uint64(i), fmt.Sprint(i)))
	}
	for _, r := range b.Publish(t.Context(), list) {
		noErr(t, r.Err)
	}
	noErr(t, b.Reopen())
	c, err := b.committer()
	noErr(t, err)
	for loaded := false; ; loaded = c.dedupe.filter.complete.Load() {
		for i := range 200 {
			if r := b.publish(eventAt(b.start, uint64(i+1e6), fmt.Sprint(i*23))); !r.Deduplicated {
				t.Fatalf("filter loaded %v: id %d was stored twice", loaded, i*23)
			}
		}
		if loaded {
			return
		}
	}
}
