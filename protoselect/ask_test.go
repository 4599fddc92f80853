package protoselect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestRecordIsAskedOnceForEverybody: deliveries, and routes that differ only in
// identity, share one query.
func TestRecordIsAskedOnceForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen record[LookupResult]
		z := zone(t, "h.example 300 1 . alpn=h3")
		z.delay = 20 * time.Millisecond
		s, n := setup(t, Config{DNS: z.config(t), Observer: Observer{LookedUp: seen.add}})
		n.tcp = tcpAfter(100 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range 20 {
			ep := endpoint("h.example")
			ep.Route.Identity = delivery.Identity{byte(i % 4)}
			wg.Go(func() {
				if _, _, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := z.questions(); len(got) != 1 || len(seen.get()) != 1 || seen.get()[0].Took != 20*time.Millisecond {
			t.Errorf("asked %v, observed %+v", got, seen.get())
		}
		ep := endpoint("h.example")
		ep.Route.Identity = delivery.Identity{9}
		start := time.Now()
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 || time.Since(start) != 0 || len(z.questions()) != 1 {
			t.Errorf("trace %+v, asked %v", tr, z.questions())
		}
	})
}

// TestBusyOriginKeepsHTTP3OverItsTTL: the record is renewed in the background
// before it runs out.
func TestBusyOriginKeepsHTTP3OverItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t, "h.example 60 1 . alpn=h3")
		s, _ := setup(t, Config{DNS: z.config(t)})
		ep := endpoint("h.example")
		for i := range 600 {
			if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 {
				t.Fatalf("second %d: trace %+v", i, tr)
			}
			time.Sleep(time.Second)
		}
		if asked := len(z.questions()); asked < 10 || asked > 15 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
	})
}

// TestMuteResolverIsNotWaitedFor: when the resolver answers nobody, new origins
// do not pay for it one by one.
func TestMuteResolverIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t)
		z.drop = true
		s, _ := setup(t, Config{DNS: z.config(t)})
		for i := range muteAfter {
			_, tr := mustDo(t, s, endpoint(fmt.Sprintf("h%d.example", i)))
			if tr.WaitedForDNS != 50*time.Millisecond {
				t.Errorf("origin %d waited %v", i, tr.WaitedForDNS)
			}
			time.Sleep(3 * time.Second)
		}
		if _, tr := mustDo(t, s, endpoint("next.example")); tr.WaitedForDNS != 0 {
			t.Errorf("waited %v", tr.WaitedForDNS)
		}
		z.mu.Lock()
		z.drop = false
		z.mu.Unlock()
		time.Sleep(3 * time.Second)
		mustDo(t, s, endpoint("asks.example")) // in the background, and gets an answer
		synctest.Wait()
		z.mu.Lock()
		z.delay = 10 * time.Millisecond
		z.mu.Unlock()
		if _, tr := mustDo(t, s, endpoint("waits.example")); tr.WaitedForDNS != 10*time.Millisecond {
			t.Errorf("waited %v", tr.WaitedForDNS)
		}
	})
}

func TestRecordIsNotAskedForWhereThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t)
		s, _ := setup(t, Config{DNS: z.config(t), EgressHTTP3: func(e string) bool { return e == "" }})
		for _, host := range []string{"127.0.0.1", "2001:db8::1", "localhost", "app.localhost", "single"} {
			mustDo(t, s, endpoint(host))
		}
		plain := endpoint("h.example")
		plain.Route.Origin.Scheme = "http"
		mustDo(t, s, plain)
		proxied := endpoint("h.example")
		proxied.Route.Egress = "proxy"
		mustDo(t, s, proxied)
		if _, _, err := s.Do(t.Context(), endpoint("h.example"), delivery.ProtocolTCP, request()); err != nil {
			t.Fatal(err)
		}
		if got := z.questions(); len(got) != 0 {
			t.Errorf("asked %v", got)
		}
	})
}

// TestWarmTCPDoesNotWaitForTheRecord: only a cold delivery does.
func TestWarmTCPDoesNotWaitForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t, "h.example 300 1 . alpn=h3")
		z.delay = 200 * time.Millisecond
		s, n := setup(t, Config{DNS: z.config(t)})
		ep := endpoint("h.example")
		conn, _ := n.DialTCP(t.Context(), ep, TCPOptions{})
		conn.Release()
		start := time.Now()
		if _, tr := mustDo(t, s, ep); !tr.Reused || time.Since(start) != 0 {
			t.Errorf("trace %+v after %v", tr, time.Since(start))
		}
		time.Sleep(time.Second)
		if st := stateOf(s, ep.Route); st != StateAdvertised || !slices.Equal(z.questions(), []string{"udp h.example"}) {
			t.Errorf("state %v, asked %v", st, z.questions())
		}
	})
}

func TestStopEndsLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t)
		z.drop = true
		s, _ := setup(t, Config{DNS: z.config(t)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, _ = s.Do(ctx, endpoint("h.example"), delivery.ProtocolAuto, request())
		start := time.Now()
		if err := s.Stop(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
