package engine

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// scene is one event for one subscriber that has been brought into a state.
type scene struct {
	state   delivery.State
	receipt Receipt
	mark    string        // what its payload consists of, and nothing else does
	hold    chan struct{} // until it is closed, its receiver does not answer
	once    sync.Once
}

// release lets the receiver answer.
func (s *scene) release() {
	if s.hold != nil {
		s.once.Do(func() { close(s.hold) })
	}
}

// marksIn tells which of the marks are found in the files of a directory.
func marksIn(t *testing.T, dir string, scenes map[string]*scene) map[string]string {
	t.Helper()
	where := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for name, s := range scenes {
			if bytes.Contains(raw, []byte(s.mark)) {
				where[name] += " " + filepath.Base(path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return where
}

// scenes brings an event into each of the states in which it can be deleted. The
// receiver does what a path says.
func scenes(b *bundle) map[string]*scene {
	b.t.Helper()
	out := map[string]*scene{}
	var mu sync.Mutex
	held := map[string]chan struct{}{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		path := strings.TrimPrefix(r.URL.Path, "/")
		mu.Lock()
		hold := held[path]
		mu.Unlock()
		switch {
		case hold != nil:
			<-hold
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasPrefix(path, "dead"):
			w.WriteHeader(http.StatusBadRequest)
		case path != "delivered":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	b.t.Cleanup(server.Close)
	for name, state := range map[string]delivery.State{
		"ready": delivery.StateHeld, "in-flight": delivery.StateAttempted, "in-flight-dies": delivery.StateAttempted,
		"retrying": delivery.StateRetrying, "parked": delivery.StateRetrying, "dead": delivery.StateDead,
		"dead-spooled": delivery.StateDead, "delivered": delivery.StateDelivered,
	} {
		s := &scene{state: state}
		in := SubscriberInput{ID: new(name), URL: new(server.URL + "/" + name), Topics: new([]string{name})}
		if strings.HasPrefix(name, "in-flight") {
			s.hold = make(chan struct{})
			b.t.Cleanup(s.release) // before the server is closed
			mu.Lock()
			held[name] = s.hold
			mu.Unlock()
		}
		if name == "in-flight-dies" {
			in.GiveUpAfter = new(1)
		}
		if _, err := b.CreateSubscriber(b.t.Context(), "t", in); err != nil {
			b.t.Fatal(err)
		}
		if name == "ready" {
			if _, err := b.PauseSubscriber(b.t.Context(), "t", name); err != nil {
				b.t.Fatal(err)
			}
		}
		if name == "parked" {
			head := b.put(EventInput{ID: "head", Topic: name, OrderingKey: "k", Payload: []byte("1")})
			b.eventually("the head waits", func() bool { info, _ := b.delivery(head, name); return info.State == delivery.StateRetrying })
		}
		raw := make([]byte, 40)
		_, _ = rand.Read(raw)
		s.mark = hex.EncodeToString(raw)
		e := EventInput{ID: "evt-" + name, Topic: name, OrderingKey: "k", Payload: []byte(s.mark)}
		if name == "dead-spooled" {
			e.Payload = bytes.Repeat(e.Payload, 2<<20/len(s.mark))
		}
		s.receipt = b.put(e)
		out[name] = s
	}
	for name, s := range out {
		var info DeliveryInfo
		b.eventually(name+" is "+s.state.String(), func() bool { info, _ = b.delivery(s.receipt, name); return info.State == s.state })
		if parked := info.Reason == delivery.ReasonOrder; parked != (name == "parked") {
			b.t.Fatalf("%s: waits for its key: %v", name, parked)
		}
	}
	return out
}

func (b *bundle) put(in EventInput) Receipt {
	b.t.Helper()
	r, err := b.Publish(b.t.Context(), "t", in)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// compacted writes everything out and rewrites it.
func (b *bundle) compacted() {
	b.t.Helper()
	if err := b.store.Compact(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// TestADeletedEventLeavesNoPayloadAndSaysWhyInWhateverStateItIs deletes events that
// are ready, in flight, retrying, parked, dead and delivered.
func TestADeletedEventLeavesNoPayloadAndSaysWhyInWhateverStateItIs(t *testing.T) {
	var dir string
	b := setup(t, func(c *Config) { dir = c.Storage.Dir })
	all := scenes(b)
	b.compacted()
	if where := marksIn(t, dir, all); len(where) != len(all) {
		t.Fatalf("of %d payloads %v are found before the deletion: nothing to test", len(all), where)
	}
	for name, s := range all {
		if err := b.DeleteEvent(t.Context(), "t", "evt-"+name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, body, err := b.DeliveryPayload(t.Context(), delivery.ID{Event: s.receipt.Key, Subscriber: name}.String()); err == nil {
			t.Errorf("%s: its payload is still shown", name)
			_ = body.Close()
		}
		info, timeline := b.delivery(s.receipt, name)
		want := delivery.StateCanceled
		if s.state.Terminal() || s.hold != nil {
			want = s.state
		}
		last := timeline[len(timeline)-1]
		if info.State != want || last.Reason != delivery.ReasonEventDeleted || !info.NextAttempt.IsZero() {
			t.Errorf("%s: right after the deletion it is %v (%v), next %v, timeline ends with %+v", name, info.State, info.Reason, info.NextAttempt, last)
		}
		s.release()
	}
	for name, s := range all {
		if s.hold == nil {
			continue
		}
		b.eventually(name+" is canceled", func() bool {
			info, _ := b.delivery(s.receipt, name)
			return info.State == delivery.StateCanceled && info.Reason == delivery.ReasonEventDeleted
		})
	}
	if rows, _, err := b.ListDeliveries(t.Context(), DeliveryFilter{Tenant: "t", State: "dead"}, Page{}); err != nil || len(rows) != 0 {
		t.Errorf("%d dead letters, %v", len(rows), err)
	}
	b.gone(dir, all)
}

// gone checks that no file of the store has a payload: after a compaction, and after
// the log was written out by stopping.
func (b *bundle) gone(dir string, all map[string]*scene) {
	b.t.Helper()
	b.compacted()
	if err := b.Stop(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	for name, files := range marksIn(b.t, dir, all) {
		for file := range strings.FieldsSeq(files) {
			// A log that is to be used again keeps what it held until it is
			// overwritten; nothing reads it.
			if !strings.HasSuffix(file, ".log") {
				b.t.Errorf("%s: its payload is in %s", name, file)
			}
		}
	}
}

// TestADeletedTenantLeavesNoPayloadInWhateverStateItsEventsAre is the same for all
// of a tenant's events at once.
func TestADeletedTenantLeavesNoPayloadInWhateverStateItsEventsAre(t *testing.T) {
	var dir string
	b := setup(t, func(c *Config) { dir = c.Storage.Dir })
	all := scenes(b)
	b.compacted()
	subs := map[string]delivery.SubscriberNum{}
	tenant, err := b.registry.GetTenant("t")
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		s, err := b.registry.GetSubscriber(tenant.Num, name)
		if err != nil {
			t.Fatal(err)
		}
		subs[name] = s.Num
	}
	if err := b.DeleteTenant(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	b.eventually("the tenant is cleaned", func() bool {
		left, err := b.registry.DeletedTenants(0, 1)
		return err == nil && len(left) == 0
	})
	for _, s := range all {
		s.release() // what was in flight ends when everything is gone
	}
	for name, s := range all {
		d, err := b.store.Delivery(t.Context(), s.receipt.Key, subs[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		last := d.Timeline[len(d.Timeline)-1]
		if !s.state.Terminal() && (d.State != delivery.StateCanceled || last.Reason != delivery.ReasonTenantDeleted) {
			t.Errorf("%s is %v (%v)", name, d.State, last.Reason)
		}
	}
	// What was in flight has ended by now, and writes nothing any more.
	b.eventually("nothing is in flight", func() bool {
		for name, s := range all {
			if _, ok := b.sched.InFlight(s.receipt.Key, subs[name]); ok {
				return false
			}
		}
		return true
	})
	b.gone(dir, all)
}
