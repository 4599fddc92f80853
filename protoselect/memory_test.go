package protoselect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// mapMemory is a Memory with a failure switch.
type mapMemory struct {
	mu    sync.Mutex
	kv    map[string][]byte
	saves int
	fail  error
}

func (m *mapMemory) Load(_ context.Context, each func(string, []byte) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, v := range m.kv {
		if err := each(k, v); err != nil {
			return err
		}
	}
	return m.fail
}

func (m *mapMemory) Save(_ context.Context, changes []MemoryChange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.saves++
	for _, c := range changes {
		if c.Value == nil {
			delete(m.kv, c.Key)
		} else {
			m.kv[c.Key] = c.Value
		}
	}
	return nil
}

func (m *mapMemory) snapshot() (kv map[string][]byte, saves int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kv), m.saves
}

func newMapMemory() *mapMemory { return &mapMemory{kv: map[string][]byte{}} }

// TestMemorySurvivesARestart: adverts, breakages, round trips and pins come
// back with what is left of their time.
func TestMemorySurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		cfg := Config{Memory: mem, Alternatives: AltPolicy{Ports: []uint16{8443}}}
		s, n := setup(t, cfg)
		good, bad := endpoint("good.example"), endpoint("bad.example")
		good.Route.Identity, good.Route.Egress = delivery.Identity{1, 2}, "a/b"
		advertise(s, good.Route, `h3=":443"; persist=1, h3=":8443"`)
		advertise(s, bad.Route, `h3=":443"`)
		n.quic = after(20 * time.Millisecond)
		mustDo(t, s, good)
		n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenExplicit) }
		mustDo(t, s, bad)
		if err := s.Pin(origin("pin.example", 8443), PinTCP, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.Distrust(bad.Route)
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)

		s2, _ := setup(t, cfg)
		rows, _ := s2.Get(good.Route.Origin)
		if len(rows) != 1 || rows[0].Route != good.Route || rows[0].State != StateConfirmed || len(rows[0].Alternatives) != 2 {
			t.Fatalf("rows %+v", rows)
		}
		a := rows[0].Alternatives[0]
		if left := time.Until(a.ExpiresAt); left != 24*time.Hour-2*time.Minute-20*time.Millisecond && left != 24*time.Hour-2*time.Minute || !a.Persist || a.SRTT != 20*time.Millisecond {
			t.Errorf("alternative %+v, left %v", a, time.Until(a.ExpiresAt))
		}
		rows, _ = s2.Get(bad.Route.Origin)
		if b := rows[0].Alternatives[0]; b.State != StateBroken || time.Until(b.BrokenUntil).Round(time.Second) != 3*time.Minute || b.Breakages != 1 || b.Class != delivery.BrokenExplicit {
			t.Errorf("broken alternative %+v for %v", b, time.Until(b.BrokenUntil))
		}
		if !rows[0].Distrusted {
			t.Error("the liar is trusted again")
		}
		pins := s2.Pins()
		if len(pins) != 1 || pins[0].Pin.Protocol != PinTCP || time.Until(pins[0].Pin.Until) != 58*time.Minute {
			t.Errorf("pins %+v", pins)
		}
	})
}

func TestSavesAreDebounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		s, n := setup(t, Config{Memory: mem})
		n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
			return withAltSvc(`h3=":443"`), nil
		}
		ep := endpoint("h.example")
		for range 100 {
			mustDo(t, s, ep)
			time.Sleep(10 * time.Millisecond)
		}
		if _, saves := mem.snapshot(); saves != 0 {
			t.Errorf("%d saves within a second", saves)
		}
		time.Sleep(5 * time.Second)
		kv, saves := mem.snapshot()
		if saves != 1 || len(kv) != 1 {
			t.Errorf("%d saves of %d entries", saves, len(kv))
		}
		// A header that is repeated all day is saved every tenth of its life.
		for range 24 * 60 {
			time.Sleep(time.Minute)
			mustDo(t, s, ep)
		}
		if _, saves = mem.snapshot(); saves < 8 || saves > 14 {
			t.Errorf("%d saves in a day", saves)
		}
	})
}

func TestForgottenRoutesAreForgottenOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		s, _ := setup(t, Config{Memory: mem, MaxRoutes: 4})
		for i := range 10 {
			advertise(s, endpoint(fmt.Sprintf("h%d.example", i)).Route, `h3=":443"`)
		}
		time.Sleep(10 * time.Second)
		if kv, _ := mem.snapshot(); len(kv) != 4 {
			t.Errorf("%d entries saved for 4 routes", len(kv))
		}
		o := endpoint("h9.example").Route.Origin
		if err := s.Pin(o, PinH3, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !s.Forget(o) || s.Forget(o) {
			t.Error("Forget did not say whether there was anything")
		}
		time.Sleep(10 * time.Second)
		kv, _ := mem.snapshot()
		for k := range kv {
			if strings.Contains(k, "h9.example") {
				t.Errorf("%s is still there", k)
			}
		}
		if len(kv) != 3 {
			t.Errorf("%d entries", len(kv))
		}
	})
}

// TestStaleEntriesLeaveTheDisk: what has run out while the node was down is
// deleted, not carried from restart to restart. The count of breakages of an
// alternative that recovered shortly before is kept.
func TestStaleEntriesLeaveTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		s, n := setup(t, Config{Memory: mem})
		old, back := endpoint("old.example"), endpoint("back.example")
		n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenTimeout) }
		for _, ep := range []delivery.Endpoint{old, back} {
			advertise(s, ep.Route, `h3=":443"`)
			mustDo(t, s, ep)
		}
		time.Sleep(time.Minute)
		n.quic = nil
		mustDo(t, s, back) // half-open: a handshake
		synctest.Wait()
		mustDo(t, s, back) // answered over HTTP/3, but only just
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, _ = setup(t, Config{Memory: mem})
		rows, _ := s.Get(back.Route.Origin)
		if a := rows[0].Alternatives[0]; a.State != StateConfirmed || a.Breakages != 1 {
			t.Errorf("alternative %+v", a)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * day)
		s, _ = setup(t, Config{Memory: mem})
		time.Sleep(10 * time.Second)
		if kv, _ := mem.snapshot(); len(kv) != 0 {
			t.Errorf("still there: %v", kv)
		}
		if rows, _ := s.List("", 10); len(rows) != 0 {
			t.Errorf("rows %+v", rows)
		}
	})
}

// TestUnsavedChangesAreBounded: a memory that cannot be written does not grow
// the heap with every route that comes and goes.
func TestUnsavedChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		s, _ := setup(t, Config{Memory: mem, MaxRoutes: 4})
		mem.mu.Lock()
		mem.fail = errors.New("disk full")
		mem.mu.Unlock()
		for i := range 1000 {
			advertise(s, endpoint(fmt.Sprintf("h%d.example", i)).Route, `h3=":443"`)
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		if len(s.dirty) > 16 {
			t.Errorf("%d routes wait to be saved", len(s.dirty))
		}
		s.mu.Unlock()
		mem.mu.Lock()
		mem.fail = nil
		mem.mu.Unlock()
	})
}

func TestFailedSaveIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		var failures record[error]
		s, _ := setup(t, Config{Memory: mem, Observer: Observer{MemoryFailed: failures.add}})
		mem.mu.Lock()
		mem.fail = errors.New("disk full")
		mem.mu.Unlock()
		advertise(s, endpoint("h.example").Route, `h3=":443"`)
		time.Sleep(12 * time.Second)
		if len(failures.get()) != 2 {
			t.Errorf("failures %v", failures.get())
		}
		mem.mu.Lock()
		mem.fail = nil
		mem.mu.Unlock()
		time.Sleep(10 * time.Second)
		if kv, _ := mem.snapshot(); len(kv) != 1 {
			t.Errorf("%d entries", len(kv))
		}
	})
}

// TestDamagedMemoryCostsOnlyItself: what cannot be read is reported and skipped.
func TestDamagedMemoryCostsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMapMemory()
		s, _ := setup(t, Config{Memory: mem})
		advertise(s, endpoint("h.example").Route, `h3=":443"`)
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for k, v := range maps.Clone(mem.kv) {
			mem.kv[k+"x"] = v // the key does not fit
			mem.kv["what/ever"] = v
			mem.kv["route/1"] = []byte(`{"v":1`)
			mem.kv["pin/1"] = []byte(`{}`)
			mem.kv["pin/2"] = []byte(`nonsense`)
		}
		var failures record[error]
		s2, _ := setup(t, Config{Memory: mem, Observer: Observer{MemoryFailed: failures.add}})
		if len(failures.get()) != 5 {
			t.Errorf("failures %v", failures.get())
		}
		if st := stateOf(s2, endpoint("h.example").Route); st != StateAdvertised {
			t.Errorf("state %v", st)
		}
		mem.fail = errors.New("cannot read")
		var broken record[error]
		s3, _ := setup(t, Config{Memory: mem, Observer: Observer{MemoryFailed: broken.add}})
		if len(broken.get()) != 6 {
			t.Errorf("failures %v", broken.get())
		}
		mem.fail = nil
		if st := stateOf(s3, endpoint("h.example").Route); st != StateAdvertised {
			t.Errorf("state %v", st)
		}
	})
}

// restoreAt restores an alternative from a file that was written when the clock
// showed saved.
func restoreAt(t *testing.T, now, saved time.Time, in savedAlt) *alternative {
	t.Helper()
	m := newMachine(Config{DNS: DNSConfig{Disabled: true}}.withDefaults())
	r := endpoint("h.example").Route
	v := savedRoute{Version: 1, Saved: saved, Scheme: "https", Host: "h.example", Port: 443, Alts: []savedAlt{in}}
	value, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.restore(now, routeKey(r), value); err != nil {
		t.Fatal(err)
	}
	return m.memory(r).find(altKey{port: 443})
}

// TestWallClockJumpsAreHarmless: a clock set back while the node was down does
// not prolong anything beyond what was left, one set forward ends it early.
func TestWallClockJumpsAreHarmless(t *testing.T) {
	saved := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := savedAlt{
		Port: 443, AltSvc: savedAdvert{Expires: saved.Add(time.Hour), Life: 2 * time.Hour},
		Breakages: 3, Class: uint8(delivery.BrokenTimeout), Until: saved.Add(10 * time.Minute), Lasted: 480,
	}
	tests := map[string]struct {
		now            time.Time
		advert, broken time.Duration
		state          State
	}{
		"no jump":         {saved.Add(5 * time.Minute), 55 * time.Minute, 5 * time.Minute, StateBroken},
		"a year back":     {saved.AddDate(-1, 0, 0), time.Hour, 10 * time.Minute, StateBroken},
		"half an hour on": {saved.Add(30 * time.Minute), 30 * time.Minute, 0, StateHalfOpen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := restoreAt(t, tt.now, saved, in)
			if st := a.state(tt.now); st != tt.state || a.broken.n != 3 || a.broken.until.Sub(tt.now) != tt.broken {
				t.Errorf("state %v, broken %+v", st, a.broken)
			}
			if tt.advert > 0 && a.altSvc.expires.Sub(tt.now) != tt.advert {
				t.Errorf("advert for %v", a.altSvc.expires.Sub(tt.now))
			}
		})
	}
	if a := restoreAt(t, saved.AddDate(100, 0, 0), saved, in); a != nil {
		t.Errorf("a century later: %+v", a)
	}
	// Numbers from a damaged file are bounded.
	in.AltSvc.Expires, in.Until, in.Breakages, in.SRTT, in.Lasted = saved.AddDate(50, 0, 0), saved.AddDate(50, 0, 0), 1<<30, 1<<60, 1<<60
	a := restoreAt(t, saved, saved, in)
	if a.altSvc.expires.Sub(saved) != maxAdvert || a.broken.until.Sub(saved) != maxBroken || a.broken.n != maxShift || a.srtt != 0 || a.broken.lasted != 0 {
		t.Errorf("unbounded: %+v", a)
	}
	// Wall times are computed from what is left, not from old readings.
	now := time.Now()
	if got := wallAt(now, now.Add(time.Minute)); got.Sub(now.Round(0)) != time.Minute || !wallAt(now, time.Time{}).IsZero() {
		t.Errorf("got %v", got)
	}
}

// TestRestoreObeysTodaysPolicy: what was allowed yesterday need not be now.
func TestRestoreObeysTodaysPolicy(t *testing.T) {
	now := time.Now()
	for _, in := range []savedAlt{
		{Host: "o.example", Port: 443}, {Port: 8443}, {Host: "127.0.0.1", Port: 443}, {Port: 0}, {Host: "a b", Port: 443},
		{Port: 443, Hints: make([]netip.Addr, maxHints+1)},
	} {
		m := newMachine(Config{DNS: DNSConfig{Disabled: true}}.withDefaults())
		e := m.memory(endpoint("h.example").Route)
		m.restoreAlt(now, e, in, now, 0)
		if len(e.alts) != 0 {
			t.Errorf("restored %+v", in)
		}
	}
}

func FuzzRestore(f *testing.F) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := routeKey(endpoint("h.example").Route)
	f.Add(key, []byte(`{"v":1,"saved":"2026-03-01T11:00:00Z","scheme":"https","host":"h.example","port":443,"alternatives":[{"port":443,"alt_svc":{"expires":"2026-03-01T13:00:00Z","life_ns":7200000000000},"breakages":2,"class":1,"broken_until":"2026-03-01T12:30:00Z"}]}`))
	f.Add(pinKey(origin("h.example", 443)), []byte(`{"v":1,"saved":"2026-03-01T11:00:00Z","scheme":"https","host":"h.example","port":443,"protocol":"h3","until":"2026-03-01T13:00:00Z"}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		m := newMachine(Config{DNS: DNSConfig{Disabled: true}}.withDefaults())
		if m.restore(now, key, value) != nil {
			return
		}
		for _, e := range m.routes.Values() {
			for _, a := range e.alts {
				if a.broken.until.Sub(now) > maxBroken || a.altSvc.expires.Sub(now) > maxAdvert || a.https.expires.Sub(now) > maxTTL {
					t.Fatalf("unbounded: %+v", a)
				}
			}
			if e.pending != 0 {
				t.Fatal("pending failures out of nowhere")
			}
			m.decide(now, e.route, delivery.ProtocolAuto)
			if v, worth := e.saved(now); worth {
				if r, ok := v.route(); !ok || !reflect.DeepEqual(r, e.route) {
					t.Fatalf("saved %+v as %+v", e.route, r)
				}
			}
		}
	})
}
