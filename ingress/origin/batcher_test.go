package origin

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func key(n int) delivery.EventKey {
	var k delivery.EventKey
	binary.BigEndian.PutUint64(k[8:], uint64(n))
	return k
}

func number(k delivery.EventKey) int { return int(binary.BigEndian.Uint64(k[8:])) }

// world is an origin and the clock that the machine lives by.
type world struct {
	t   *testing.T
	b   *Batcher
	now time.Time
	// answer judges a batch; its default takes everything.
	answer   func(Batch) Result
	next     int // number of the next event
	decided  map[int]Decision
	requests []Batch
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, b: b, now: start, decided: map[int]Decision{},
		answer: func(Batch) Result { return Result{Verdict: VerdictDelivered} },
	}
}

// add puts in as many events as asked for, all of which must find room.
func (w *world) add(count int) {
	w.t.Helper()
	for range count {
		if !w.b.Add(Item{Key: key(w.next), Size: 100, ReceivedAt: w.now}, w.now) {
			w.t.Fatalf("no room for event %d", w.next)
		}
		w.next++
	}
}

// send lets everything go out that may go now, one after the other.
func (w *world) send() {
	w.t.Helper()
	for {
		batch, ok := w.b.Next(w.now)
		if !ok {
			return
		}
		w.requests = append(w.requests, batch)
		w.take(w.b.Result(batch.ID, w.answer(batch), w.now, 0.5))
	}
}

func (w *world) take(decisions []Decision) {
	w.t.Helper()
	for _, d := range decisions {
		n := number(d.Key)
		if earlier, twice := w.decided[n]; twice {
			w.t.Fatalf("event %d is decided twice: %+v, then %+v", n, earlier, d)
		}
		w.decided[n] = d
	}
}

// run lives until the time has come, jumping from wake to wake.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for range 1_000_000 {
		w.send()
		wake, ok := w.b.Wake()
		if !ok || wake.After(end) {
			w.now = end
			return
		}
		if !wake.After(w.now) {
			w.t.Fatal("the machine asks to be woken now, but has nothing to do")
		}
		w.now = wake
	}
	w.t.Fatal("the machine does not come to rest")
}

func (w *world) counts() (delivered, dead int) {
	for _, d := range w.decided {
		if d.Dead {
			dead++
		} else {
			delivered++
		}
	}
	return delivered, dead
}

// poison fails every batch that holds one of the numbers.
func poison(verdict Verdict, numbers ...int) func(Batch) Result {
	bad := map[int]bool{}
	for _, n := range numbers {
		bad[n] = true
	}
	return func(b Batch) Result {
		for _, item := range b.Items {
			if bad[number(item.Key)] {
				return Result{Verdict: verdict}
			}
		}
		return Result{Verdict: VerdictDelivered}
	}
}

func TestBatchGoesOutAtFiftyEventsOrTwoSeconds(t *testing.T) {
	w := newWorld(t, Config{})
	w.add(49)
	w.send()
	if len(w.requests) != 0 {
		t.Fatal("49 events did not wait for company")
	}
	w.add(1)
	w.send()
	if len(w.requests) != 1 || len(w.requests[0].Items) != 50 {
		t.Fatalf("at 50 events: %d requests", len(w.requests))
	}
	w.add(1)
	wake, ok := w.b.Wake()
	if !ok || wake.Sub(w.now) != 2*time.Second {
		t.Fatalf("one event waits %v, want 2s", wake.Sub(w.now))
	}
	w.now = wake.Add(-time.Nanosecond)
	w.send()
	if len(w.requests) != 1 {
		t.Fatal("it went out too early")
	}
	w.now = wake
	w.send()
	if len(w.requests) != 2 || w.b.Held() != 0 {
		t.Fatalf("%d requests, %d held", len(w.requests), w.b.Held())
	}
}

func TestBatchIsClosedByBytesAndALargeEventGoesAlone(t *testing.T) {
	w := newWorld(t, Config{MaxBytes: 1000})
	for _, size := range []int64{400, 400, 400, 5000, 1} {
		w.b.Add(Item{Key: key(w.next), Size: size, ReceivedAt: w.now}, w.now)
		w.next++
	}
	w.run(time.Minute)
	var sizes []int
	for _, r := range w.requests {
		sizes = append(sizes, len(r.Items))
	}
	if len(sizes) != 4 || sizes[0] != 2 || sizes[1] != 1 || sizes[2] != 1 || sizes[3] != 1 {
		t.Errorf("batches of %v events, want 2, 1, 1, 1", sizes)
	}
}

func TestRejectedEventIsFoundByHalvingAndTheRestIsDelivered(t *testing.T) {
	w := newWorld(t, Config{})
	w.answer = poison(VerdictRejected, 17)
	w.add(50)
	w.send()
	if delivered, dead := w.counts(); delivered != 49 || dead != 1 || w.decided[17].Reason != delivery.ReasonRejected {
		t.Errorf("%d delivered, %d dead, event 17: %+v", delivered, dead, w.decided[17])
	}
	// One request for the whole, two for each level below.
	if len(w.requests) > 1+2*6 {
		t.Errorf("%d requests", len(w.requests))
	}
	if w.now != start {
		t.Error("it took time, though the origin is well")
	}
}

func TestPoisonThatBreaksTheOriginIsDeadOnlyWhileOthersGetThrough(t *testing.T) {
	w := newWorld(t, Config{})
	w.answer = poison(VerdictSuspect, 31)
	w.add(50)
	w.run(time.Hour)
	if delivered, dead := w.counts(); delivered != 49 || dead != 0 {
		t.Fatalf("nothing else gets through: %d delivered, %d dead, want the poison to be kept", delivered, dead)
	}
	for range 10 {
		w.add(1)
		w.run(6 * time.Minute)
	}
	if _, dead := w.counts(); dead != 1 || w.decided[31].Reason != delivery.ReasonExhausted {
		t.Errorf("others get through: %d dead, %+v", dead, w.decided[31])
	}
}

func TestPoisonNeverHoldsUpHealthyEvents(t *testing.T) {
	w := newWorld(t, Config{})
	bad := map[int]bool{}
	w.answer = func(b Batch) Result {
		for _, item := range b.Items {
			if bad[number(item.Key)] {
				return Result{Verdict: VerdictSuspect}
			}
		}
		return Result{Verdict: VerdictDelivered}
	}
	// Every tenth event is poison, for an hour, one event a second.
	for second := range 3600 {
		bad[second] = second%10 == 0
		w.add(1)
		w.run(time.Second)
	}
	w.run(30 * time.Minute)
	for n, d := range w.decided {
		if bad[n] != d.Dead {
			t.Fatalf("event %d, poison %v: %+v", n, bad[n], d)
		}
	}
	if w.b.Held() > 0 && len(w.decided)+w.b.Held() != 3600 {
		t.Errorf("%d decided, %d held", len(w.decided), w.b.Held())
	}
}

func TestHealthyEventsPassWhileTheWindowIsFullOfPoison(t *testing.T) {
	w := newWorld(t, Config{Window: 50})
	w.answer = func(b Batch) Result {
		for _, item := range b.Items {
			if number(item.Key) < 50 {
				return Result{Verdict: VerdictSuspect}
			}
		}
		return Result{Verdict: VerdictDelivered}
	}
	w.add(50)
	w.run(time.Hour)
	if w.b.Held() != 50 || len(w.decided) != 0 {
		t.Fatalf("%d held, %d decided", w.b.Held(), len(w.decided))
	}
	if w.b.Room() != 1 {
		t.Fatalf("room for %d, want one scout", w.b.Room())
	}
	w.add(1)
	if w.b.Room() != 0 {
		t.Fatal("room for a second scout")
	}
	w.run(6 * time.Minute)
	if d, ok := w.decided[50]; !ok || d.Dead {
		t.Fatalf("the scout is not delivered: %+v", d)
	}
	for range 60 {
		w.add(1)
		w.run(6 * time.Minute)
	}
	if delivered, dead := w.counts(); delivered != 61 || dead != 50 || w.b.Held() != 0 {
		t.Errorf("%d delivered, %d dead, %d held", delivered, dead, w.b.Held())
	}
}

func TestOutageLosesNothingAndAsksRarely(t *testing.T) {
	for _, verdict := range []Verdict{VerdictSuspect, VerdictDown} {
		t.Run(verdict.String(), func(t *testing.T) {
			w := newWorld(t, Config{})
			w.add(200)
			w.run(time.Minute)
			w.requests = nil
			w.answer = func(Batch) Result { return Result{Verdict: verdict} }
			w.add(200)
			w.run(24 * time.Hour)
			if _, dead := w.counts(); dead != 0 {
				t.Fatalf("%d dead in an outage", dead)
			}
			// One request per wait of 225 s (300 s less a quarter), after the first ones.
			if most := 24*3600/225 + 20; len(w.requests) > most {
				t.Errorf("%d requests in a day, want at most %d", len(w.requests), most)
			}
			w.answer = func(Batch) Result { return Result{Verdict: VerdictDelivered} }
			w.run(6 * time.Minute)
			if delivered, _ := w.counts(); delivered != 400 || w.b.Held() != 0 {
				t.Errorf("after the outage: %d delivered, %d held", delivered, w.b.Held())
			}
		})
	}
}

func TestSuccessBeforeAnOutageIsNoEvidenceDuringIt(t *testing.T) {
	w := newWorld(t, Config{})
	w.answer = poison(VerdictSuspect, 0)
	w.add(1)
	w.run(2 * time.Second) // event 0 has failed once
	w.add(1)
	w.run(3 * time.Second) // event 1 got through
	w.answer = func(Batch) Result { return Result{Verdict: VerdictSuspect} }
	w.run(24 * time.Hour)
	if _, dead := w.counts(); dead != 0 {
		t.Error("an event died of an outage")
	}
}

func TestRetryAfterIsObeyedAndOneProbeFollows(t *testing.T) {
	w := newWorld(t, Config{})
	w.add(100)
	w.answer = func(Batch) Result { return Result{Verdict: VerdictDown, RetryAfter: 20 * time.Minute} }
	one, _ := w.b.Next(w.now)
	w.take(w.b.Result(one.ID, w.answer(one), w.now, 0))
	wake, ok := w.b.Wake()
	if !ok || wake.Sub(w.now) != 20*time.Minute {
		t.Fatalf("wakes in %v, want 20m", wake.Sub(w.now))
	}
	w.now = wake
	probe, ok := w.b.Next(w.now)
	if !ok || probe.ID != one.ID {
		t.Fatalf("the same batch goes first: %+v", probe)
	}
	if _, second := w.b.Next(w.now); second {
		t.Error("two requests at a time to an origin that is down")
	}
	w.take(w.b.Result(probe.ID, Result{Verdict: VerdictDelivered}, w.now, 0))
	if b, ok := w.b.Next(w.now); !ok || len(b.Items) != 50 {
		t.Error("the rest does not follow at once")
	}
}

func TestInterruptionCostsNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.add(50)
	batch, _ := w.b.Next(w.now)
	if d := w.b.Result(batch.ID, Result{Verdict: VerdictInterrupted}, w.now, 0.5); len(d) != 0 {
		t.Fatalf("decided %v", d)
	}
	if again, ok := w.b.Next(w.now); !ok || again.ID != batch.ID || w.b.Down() {
		t.Error("the batch is not due at once")
	}
}

func TestEventsExpireAndTakeNoOthersAlong(t *testing.T) {
	w := newWorld(t, Config{MaxAge: time.Hour})
	w.answer = func(Batch) Result { return Result{Verdict: VerdictDown} }
	w.add(10)
	w.run(50 * time.Minute)
	w.add(10)
	w.run(20 * time.Minute)
	for n := range 10 {
		if w.decided[n].Reason != delivery.ReasonExpired {
			t.Errorf("event %d: %+v", n, w.decided[n])
		}
	}
	if w.b.Held() != 10 {
		t.Errorf("%d held, want the 10 younger ones", w.b.Held())
	}
}

func TestResultOfAnUnknownBatchIsPassedOver(t *testing.T) {
	w := newWorld(t, Config{})
	w.add(50)
	batch, _ := w.b.Next(w.now)
	delivered := Result{Verdict: VerdictDelivered}
	if d := w.b.Result(99, delivered, w.now, 0); d != nil {
		t.Error("a batch that never was")
	}
	w.take(w.b.Result(batch.ID, delivered, w.now, 0))
	if d := w.b.Result(batch.ID, delivered, w.now, 0); d != nil {
		t.Error("a result twice")
	}
}

// Whatever an origin does, each event ends exactly once, and none that is good
// ends dead.
func TestRandomOriginsLoseAndInventNothing(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, Config{MaxEvents: 1 + rnd.IntN(20), Window: 100})
		bad := map[int]Verdict{}
		down := false
		w.answer = func(b Batch) Result {
			if down || rnd.IntN(20) == 0 {
				return Result{Verdict: []Verdict{VerdictDown, VerdictSuspect, VerdictInterrupted}[rnd.IntN(3)]}
			}
			for _, item := range b.Items {
				if v, ok := bad[number(item.Key)]; ok {
					return Result{Verdict: v}
				}
			}
			return Result{Verdict: VerdictDelivered}
		}
		for range 300 {
			for range min(rnd.IntN(10), w.b.Room()) {
				if rnd.IntN(15) == 0 {
					bad[w.next] = []Verdict{VerdictRejected, VerdictSuspect}[rnd.IntN(2)]
				}
				w.add(1)
			}
			down = rnd.IntN(10) == 0
			w.run(time.Duration(rnd.IntN(60)) * time.Second)
		}
		down = false
		for range 1000 { // others go on getting through, so poison dies
			if w.b.Held() == 0 {
				break
			}
			w.add(min(1, w.b.Room()))
			w.run(6 * time.Minute)
		}
		if w.b.Held() != 0 || len(w.decided) != w.next {
			t.Fatalf("seed %d: %d of %d decided, %d held", seed, len(w.decided), w.next, w.b.Held())
		}
		for n, d := range w.decided {
			_, poisoned := bad[n]
			if poisoned != d.Dead {
				t.Errorf("seed %d: event %d, poison %v: %+v", seed, n, poisoned, d)
			}
		}
	}
}

func TestWaitsDoubleUpToTheLongestAndAreNeverInStep(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 8: 256 * time.Second, 9: 5 * time.Minute, 30: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := b.backoff(level, 0); got != want {
			t.Errorf("level %d: %v, want %v", level, got, want)
		}
		if got := b.backoff(level, 1); got != want/2 {
			t.Errorf("level %d with most jitter: %v, want %v", level, got, want/2)
		}
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	_, err := New(Config{MaxEvents: -1, Window: -5, BackoffBase: time.Hour, Attempts: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"max_events", "backoff_max", "attempts"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}

func TestJudgementFollowsWhetherTheOriginSawTheEvents(t *testing.T) {
	now := start
	for name, c := range map[string]struct {
		result delivery.Result
		want   Verdict
	}{
		"200":              {delivery.Result{Status: 200}, VerdictDelivered},
		"400":              {delivery.Result{Status: 400}, VerdictRejected},
		"413":              {delivery.Result{Status: 413}, VerdictRejected},
		"401":              {delivery.Result{Status: 401}, VerdictDown},
		"404":              {delivery.Result{Status: 404}, VerdictDown},
		"410":              {delivery.Result{Status: 410}, VerdictDown},
		"429":              {delivery.Result{Status: 429}, VerdictDown},
		"302":              {delivery.Result{Status: 302}, VerdictDown},
		"500":              {delivery.Result{Status: 500}, VerdictSuspect},
		"503":              {delivery.Result{Status: 503}, VerdictSuspect},
		"503 with a wait":  {delivery.Result{Status: 503, RetryAfter: "30"}, VerdictDown},
		"refused":          {delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseConnect}, VerdictDown},
		"goaway":           {delivery.Result{Sent: delivery.SentRefused, Cause: delivery.CauseGoAway}, VerdictDown},
		"reset":            {delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseReset}, VerdictSuspect},
		"timeout":          {delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout}, VerdictSuspect},
		"our own crash":    {delivery.Result{Cause: delivery.CauseRecovered}, VerdictDown},
		"our own shutdown": {delivery.Result{Cause: delivery.CauseShutdown}, VerdictInterrupted},
		"address denied":   {delivery.Result{Cause: delivery.CausePolicyLiteral}, VerdictDown},
		"no files":         {delivery.Result{Cause: delivery.CauseLocal}, VerdictDown},
	} {
		got := Judge(c.result, delivery.Classify(c.result, now))
		if got.Verdict != c.want {
			t.Errorf("%s: %v, want %v", name, got.Verdict, c.want)
		}
	}
	r := delivery.Result{Status: 429, RetryAfter: "7"}
	if got := Judge(r, delivery.Classify(r, now)); got.RetryAfter != 7*time.Second {
		t.Errorf("Retry-After is lost: %+v", got)
	}
}
