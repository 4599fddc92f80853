package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// crashed is what a crash of the machine would leave of a file system now. The
// type of that is the store's affair.
func crashed[F interface{ CrashClone(C) F }, C any](fs F) F {
	var everythingUnsyncedIsLost C
	return fs.CrashClone(everythingUnsyncedIsLost)
}

// graveyard is a store with dead letters of paused subscribers: what is replayed
// stays in the queue, where it can be counted, and nothing is ever sent. Tests
// with it run in virtual time.
type graveyard struct {
	*Engine
	t    *testing.T
	subs []*delivery.Subscriber
}

const lettersEach = 40

// bury makes a store with two subscribers and [lettersEach] dead letters of each.
// crash returns what a crash would leave of it at that moment.
func bury(t *testing.T) (config storage.Config, crash func() storage.Config) {
	t.Helper()
	fs := storage.InMemory()
	config = storage.Config{Dir: "store", FS: fs, MemTable: 1 << 20, Cache: 1 << 20, DedupeMemory: 64 << 10}
	config.Watermark.Bytes = -1
	s, err := storage.Open(config)
	must(t, err)
	tenant, err := s.Registry().PutTenant(delivery.Tenant{ID: "t", Weight: 1}, storage.MustNotExist)
	must(t, err)
	for _, id := range []string{"a", "b"} {
		sub, err := s.Registry().CreateSubscriber(&delivery.Subscriber{
			ID: id, Tenant: tenant.Num, URL: "https://a.example/", Topics: []string{"*"},
			Signing: []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}}}},
			Status:  delivery.SubscriberPaused, StatusReason: delivery.ReasonOperator,
		})
		must(t, err)
		for range lettersEach {
			dieIn(t, s, sub)
		}
	}
	must(t, s.Close())
	time.Sleep(time.Second)
	return config, func() storage.Config {
		image := config
		image.FS = crashed(fs)
		return image
	}
}

// dieIn publishes an event for a subscriber, whose delivery dies at once.
func dieIn(t *testing.T, s *storage.Store, sub *delivery.Subscriber) {
	t.Helper()
	key := new(keyMaker).next(time.Now()) // each bubble's time begins anew
	r := s.Publish(t.Context(), []*delivery.Published{{
		Lease: s.Lease(), Event: &delivery.Event{Key: key, ID: key.String(), Tenant: sub.Tenant, Topic: "x", Payload: []byte("{}"), Size: 2},
		Targets: []delivery.Target{{Subscriber: sub.Num, Lane: delivery.PriorityNormal}},
	}})
	must(t, r[0].Err)
	rows, err := s.Ready(sub.Num, delivery.PriorityNormal, 0, 1000)
	must(t, err)
	kill(t, s, rows[len(rows)-1])
}

// kill makes a dead letter of a row.
func kill(t *testing.T, s *storage.Store, row delivery.Row) {
	t.Helper()
	done := make(chan error, 1)
	s.Commit([]delivery.Fact{&delivery.Moved{
		Lease: s.Lease(), Row: row, At: time.Now(), Next: delivery.NextDead, Reason: delivery.ReasonRejected, Signature: "rejected: status 400",
	}}, func(err error) { done <- err })
	must(t, <-done)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rise starts a node on a store.
func rise(t *testing.T, config storage.Config) *graveyard {
	t.Helper()
	e, err := New(Config{Storage: config, Selector: protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}}})
	must(t, err)
	must(t, e.Start(t.Context()))
	g := &graveyard{Engine: e, t: t}
	t.Cleanup(g.fall)
	for _, id := range []string{"a", "b"} {
		if s, err := e.registry.GetSubscriber(1, id); err == nil {
			g.subs = append(g.subs, s)
		}
	}
	return g
}

func (g *graveyard) fall() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.Stop(ctx); err != nil {
		g.t.Error(err)
	}
}

func (g *graveyard) replay(perSecond float64) ReplayJob {
	g.t.Helper()
	job, err := g.StartReplay(g.t.Context(), DeliveryFilter{Tenant: "t"}, perSecond)
	must(g.t, err)
	return job
}

func (g *graveyard) job(id string) ReplayJob {
	g.t.Helper()
	job, err := g.GetReplay(g.t.Context(), id)
	must(g.t, err)
	return job
}

// ended waits for the end of a job.
func (g *graveyard) ended(id string) ReplayJob {
	g.t.Helper()
	for range 10_000 {
		if job := g.job(id); job.State.Ended() {
			return job
		}
		time.Sleep(100 * time.Millisecond)
	}
	g.t.Fatalf("it does not end: %+v", g.job(id))
	return ReplayJob{}
}

// replays counts how often each delivery was replayed, over all subscribers.
func (g *graveyard) counted() (times map[int]int, pending, dead int) {
	g.t.Helper()
	times = map[int]int{}
	for _, s := range g.subs {
		page, err := g.store.Deliveries(g.t.Context(), storage.Filter{Subscriber: s.Num}, "", 1000)
		must(g.t, err)
		for _, item := range page.Items {
			d, err := g.store.Delivery(g.t.Context(), item.Event, s.Num)
			must(g.t, err)
			n := 0
			for _, entry := range d.Timeline {
				if entry.Reason == delivery.ReasonReplay {
					n++
				}
			}
			times[n]++
			if d.State == delivery.StateDead {
				dead++
			} else {
				pending++
			}
		}
	}
	return times, pending, dead
}

func TestAReplayJobKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		begun := time.Now()
		job := g.ended(g.replay(10).ID)
		// The first second's worth goes at once.
		if took := job.EndedAt.Sub(begun); took != 7*time.Second || job.State != ReplayDone || job.Replayed != 2*lettersEach || job.Total != 2*lettersEach {
			t.Errorf("%v: %+v", took, job)
		}
		begun = time.Now()
		job = g.ended(g.replay(0.5).ID)
		if job.EndedAt.Sub(begun) != 0 || job.Replayed != 0 || job.Total != 0 {
			t.Errorf("there is nothing left: %+v", job)
		}
	})
}

func TestAReplayJobGoesOnWhereARestartInterruptedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		id := g.replay(10).ID
		time.Sleep(2500 * time.Millisecond)
		before := g.job(id)
		if before.State != ReplayRunning || before.Replayed != 30 || before.Total != 2*lettersEach {
			t.Fatalf("%+v", before)
		}
		g.fall()
		time.Sleep(time.Hour)
		g = rise(t, config)
		job := g.ended(id)
		if job.State != ReplayDone || job.Replayed != 2*lettersEach || job.Total != 2*lettersEach || !job.StartedAt.Equal(before.StartedAt) {
			t.Errorf("%+v", job)
		}
		if times, _, dead := g.counted(); times[1] != 2*lettersEach || dead != 0 {
			t.Errorf("replayed so often: %v; %d are dead", times, dead)
		}
	})
}

func TestAReplayJobRepeatsAndSkipsNothingWhereverTheNodeDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, crash := bury(t)
		g := rise(t, config)
		id := g.replay(25).ID
		var images []storage.Config
		seen := map[int]bool{}
		for range 30 {
			time.Sleep(99 * time.Millisecond)
			images = append(images, crash())
			seen[g.job(id).Replayed] = true
		}
		g.fall()
		if len(seen) < 3 {
			t.Fatalf("the images show %v alone", seen)
		}
		for _, image := range images {
			g := rise(t, image)
			job := g.ended(id)
			times, pending, _ := g.counted()
			if job.Replayed != 2*lettersEach || job.PassedOver != 0 || times[1] != 2*lettersEach || pending != 2*lettersEach {
				t.Errorf("%+v; replayed so often: %v", job, times)
			}
			g.fall()
		}
	})
}

func TestAReplayJobTakesWhatWasDeadWhenItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		// It waits behind four others, which have the first of b's and keep it.
		var others []string
		for range maxReplaysRunning {
			others = append(others, g.replay(0.001).ID)
		}
		time.Sleep(time.Second)
		waits := g.replay(10).ID
		for range 3 {
			time.Sleep(time.Second)
			dieIn(t, g.store, g.subs[0])
		}
		rows, err := g.store.Ready(g.subs[1].Num, delivery.PriorityNormal, 0, 1000)
		if err != nil || len(rows) == 0 || len(rows) > maxReplaysRunning {
			t.Fatalf("the others replayed %d, %v", len(rows), err)
		}
		kill(t, g.store, rows[0]) // a second time
		if job := g.job(waits); job.State != ReplayPending {
			t.Fatalf("%+v", job)
		}
		for _, id := range others {
			_, err := g.CancelReplay(t.Context(), id)
			must(t, err)
		}
		job := g.ended(waits)
		if want := 2*lettersEach - len(rows); job.State != ReplayDone || job.Replayed != want || job.Total != want || job.PassedOver != 0 {
			t.Errorf("%+v", job)
		}
		if times, _, dead := g.counted(); times[0] != 3 || times[1] != 2*lettersEach || dead != 4 {
			t.Errorf("replayed so often: %v; %d are dead", times, dead)
		}
	})
}

func TestFourReplayJobsRunAndACancelledOneGivesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		var ids []string
		for range maxReplaysRunning + 2 {
			ids = append(ids, g.replay(1).ID)
			time.Sleep(time.Millisecond)
		}
		states := func() string {
			var out []string
			for _, id := range ids {
				out = append(out, string(g.job(id).State))
			}
			return strings.Join(out, " ")
		}
		time.Sleep(4500 * time.Millisecond)
		if got := states(); got != "running running running running pending pending" {
			t.Fatal(got)
		}
		for _, id := range []string{ids[4], ids[0], ids[0]} { // one that waits, one that runs, and again
			if job, err := g.CancelReplay(t.Context(), id); err != nil || job.State != ReplayCanceled || job.EndedAt.IsZero() {
				t.Fatalf("%+v, %v", job, err)
			}
		}
		synctest.Wait()
		if got := states(); got != "canceled running running running canceled running" {
			t.Error(got)
		}
		replayed := 0
		for _, id := range ids {
			job, err := g.CancelReplay(t.Context(), id)
			must(t, err)
			replayed += job.Replayed
		}
		times, pending, dead := g.counted()
		if replayed == 0 || times[1] != replayed || pending != replayed || dead != 2*lettersEach-replayed {
			t.Errorf("%d are counted as replayed, %d were; %d are dead", replayed, times[1], dead)
		}
		time.Sleep(time.Minute)
		if _, after, _ := g.counted(); after != pending {
			t.Error("canceled jobs go on")
		}
	})
}

func TestACancelledReplayJobStaysCancelledOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, crash := bury(t)
		g := rise(t, config)
		id := g.replay(1).ID
		time.Sleep(3500 * time.Millisecond)
		before, err := g.CancelReplay(t.Context(), id)
		must(t, err)
		image := crash() // the answer was a promise
		g.fall()
		g = rise(t, image)
		time.Sleep(time.Minute)
		if job := g.job(id); job != before || job.Replayed != 4 {
			t.Errorf("%+v, before: %+v", job, before)
		}
	})
}

func TestAReplayJobEndsWithItsTenantOrSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		of := func(sub string) string {
			job, err := g.StartReplay(t.Context(), DeliveryFilter{Tenant: "t", Subscriber: sub, Signature: "rejected: status 400"}, 0.01)
			must(t, err)
			return job.ID
		}
		a, b, both := of("a"), of("b"), g.replay(0.01).ID
		time.Sleep(time.Second)
		must(t, g.DeleteSubscriber(t.Context(), "t", "a"))
		if job := g.ended(a); job.State != ReplayFailed || job.Why != "the subscriber was deleted" || job.TenantGone {
			t.Errorf("%+v", job)
		}
		if state := g.job(both).State; state != ReplayRunning {
			t.Errorf("the tenant's is %s", state)
		}
		must(t, g.DeleteTenant(t.Context(), "t"))
		for _, id := range []string{b, both} {
			if job := g.ended(id); job.State != ReplayFailed || job.Why != "the tenant was deleted" || !job.TenantGone {
				t.Errorf("%+v", job)
			}
		}
		// The next tenant of that id is another one.
		_, _, err := g.PutTenant(t.Context(), "t", TenantInput{})
		must(t, err)
		if jobs, _, err := g.ListReplays(t.Context(), "t", Page{}); err != nil || len(jobs) != 0 {
			t.Errorf("it sees %+v, %v", jobs, err)
		}
		if jobs, _, err := g.ListReplays(t.Context(), "", Page{}); err != nil || len(jobs) != 3 {
			t.Errorf("the node sees %+v, %v", jobs, err)
		}
	})
}

func TestAReplayJobWhoseTenantWentWithACrashFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		id := g.replay(1).ID
		time.Sleep(time.Second)
		g.fall()
		s, err := storage.Open(config)
		must(t, err)
		_, err = s.Registry().DeleteTenant("t", storage.AnyVersion)
		must(t, err)
		_, err = s.Registry().PutTenant(delivery.Tenant{ID: "t", Weight: 1}, storage.MustNotExist)
		must(t, err)
		must(t, s.Close())
		if job := rise(t, config).ended(id); job.State != ReplayFailed || job.Why != "the tenant was deleted" {
			t.Errorf("%+v", job)
		}
	})
}

func TestTheLastReplayJobsAreKeptAndListedNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		var ids []string
		for range replaysKept + 5 {
			ids = append(ids, g.ended(g.replay(0).ID).ID)
			time.Sleep(time.Second)
		}
		g.fall()
		g = rise(t, config)
		var listed []string
		for page := (Page{Limit: 30}); ; {
			jobs, next, err := g.ListReplays(t.Context(), "t", page)
			must(t, err)
			for _, job := range jobs {
				listed = append(listed, job.ID)
			}
			if page.Cursor = next; next == "" {
				break
			}
		}
		for i, id := range listed {
			if want := ids[len(ids)-1-i]; id != want {
				t.Fatalf("%d: %s, want %s", i, id, want)
			}
		}
		if len(listed) != replaysKept {
			t.Errorf("%d are kept", len(listed))
		}
		if _, err := g.GetReplay(t.Context(), ids[0]); !errors.Is(err, ErrNotFound) {
			t.Errorf("the oldest: %v", err)
		}
		if _, err := g.CancelReplay(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("one that never was: %v", err)
		}
	})
}

func TestReplayJobsAreRefusedBeforeTheyAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _ := bury(t)
		g := rise(t, config)
		for want, c := range map[string]struct {
			filter DeliveryFilter
			rate   float64
		}{
			"tenant":     {DeliveryFilter{}, 0},
			"state":      {DeliveryFilter{Tenant: "t", State: "delivered"}, 0},
			"reason":     {DeliveryFilter{Tenant: "t", Reason: "bad luck"}, 0},
			"per_second": {DeliveryFilter{Tenant: "t"}, math.NaN()},
			"until":      {DeliveryFilter{Tenant: "t", Until: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, 0},
		} {
			_, err := g.StartReplay(t.Context(), c.filter, c.rate)
			if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Fields[0].Field != want {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := g.StartReplay(t.Context(), DeliveryFilter{Tenant: "t", Subscriber: "none"}, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such subscriber: %v", err)
		}
		for range maxReplaysWaiting {
			g.replay(0.001)
		}
		_, err := g.StartReplay(t.Context(), DeliveryFilter{Tenant: "t"}, 0)
		if full, ok := errors.AsType[*ConflictError](err); !ok || full.Field != "replays" {
			t.Errorf("one too many: %v", err)
		}
		if jobs, _, _ := g.ListReplays(t.Context(), "", Page{Limit: 1000}); len(jobs) != maxReplaysWaiting {
			t.Errorf("%d were made", len(jobs))
		}
	})
}
