package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// alarmRig is alarms over an engine that is made up, in virtual time.
type alarmRig struct {
	t       *testing.T
	a       *alarms
	began   time.Time
	told    []string // "5m0s t1 dispatcher.breaker.opened s7"
	data    []any
	mu      sync.Mutex // guards what a test and the alarms' goroutine touch at one moment
	results map[OperationalResult]int
	kept    map[alarmKey]alarmRecord

	deaf    map[delivery.TenantNum]bool
	refuses error
	gone    map[delivery.SubscriberNum]bool
	isOpen  map[delivery.SubscriberNum]bool
	topics  map[delivery.EventKey]string
	asked   int // for listeners
	node    delivery.TenantNum
}

func inAlarmRig(t *testing.T, test func(r *alarmRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &alarmRig{
			t: t, began: time.Now(), results: map[OperationalResult]int{}, kept: map[alarmKey]alarmRecord{},
			deaf: map[delivery.TenantNum]bool{}, gone: map[delivery.SubscriberNum]bool{},
			isOpen: map[delivery.SubscriberNum]bool{}, topics: map[delivery.EventKey]string{},
		}
		r.start()
		test(r)
		r.stop()
	})
}

// start makes alarms of a node that begins, over the records that the last one left.
func (r *alarmRig) start() {
	r.a = newAlarms(alarmPorts{
		heard: func(tenant delivery.TenantNum, _ string) (bool, error) { r.asked++; return !r.deaf[tenant], nil },
		publish: func(_ context.Context, tenant delivery.TenantNum, topic string, data any) error {
			if r.refuses != nil {
				return r.refuses
			}
			r.told = append(r.told, fmt.Sprintf("%v t%d %s", time.Since(r.began), tenant, strings.TrimPrefix(topic, delivery.OperationalPrefix)))
			r.data = append(r.data, data)
			return nil
		},
		identify: func(sub delivery.SubscriberNum) (string, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.gone[sub] {
				return "", delivery.ErrNoSubscriber
			}
			return fmt.Sprintf("s%d", sub), nil
		},
		open:     func(sub delivery.SubscriberNum) (bool, error) { return r.isOpen[sub], nil },
		topic:    func(_ context.Context, key delivery.EventKey) (string, error) { return r.topics[key], nil },
		operator: func() delivery.TenantNum { return r.node },
		records:  r,
		observed: func(_ string, result OperationalResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results[result]++
		},
		logger: slog.New(slog.DiscardHandler), node: "n",
	})
	r.a.start()
}

func (r *alarmRig) stop() {
	if err := r.a.stop(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// forget deletes a subscriber.
func (r *alarmRig) forget(sub delivery.SubscriberNum) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[sub] = true
}

func (r *alarmRig) restart() { r.stop(); r.start() }

func (r *alarmRig) load() ([]alarmRecord, error)  { return slices.Collect(maps.Values(r.kept)), nil }
func (r *alarmRig) keep(record alarmRecord) error { r.kept[record.key] = record; return nil }
func (r *alarmRig) drop(key alarmKey) error       { delete(r.kept, key); return nil }

func (r *alarmRig) breaker(sub delivery.SubscriberNum, to delivery.BreakerState, topic string) {
	r.a.breakerChanged(sched.BreakerChanged{
		Subscriber: sub, Tenant: 1, To: to, Why: sched.WhyConsecutive, OpenUntil: time.Now().Add(time.Minute), Topic: topic,
	})
}

func (r *alarmRig) died(n int, topic string) {
	for range n {
		r.a.died(1, 7, delivery.ReasonExhausted, topic, delivery.EventKey{})
	}
}

// handOver has what the test did with the rig happen before what the alarms' goroutine
// does next, which takes the same lock.
func (r *alarmRig) handOver() {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
}

// after lets time pass.
func (r *alarmRig) after(d time.Duration) {
	r.handOver()
	time.Sleep(d)
	synctest.Wait()
}

// expect compares what was told, and when, and forgets it.
func (r *alarmRig) expect(want ...string) {
	r.t.Helper()
	r.handOver()
	synctest.Wait()
	if !slices.Equal(r.told, want) {
		r.t.Errorf("told %q, want %q", r.told, want)
	}
	r.told, r.data = nil, nil
}

func TestFlappingEndpointIsToldOfOnceAndOnceItIsWell(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		for range 60 { // half an hour of a minute each, half of it open
			r.breaker(7, delivery.BreakerOpen, "a")
			r.after(15 * time.Second)
			r.breaker(7, delivery.BreakerHalfOpen, "")
			r.breaker(7, delivery.BreakerClosed, "a")
			r.after(15 * time.Second)
		}
		r.expect("1s t1 breaker.opened")
		r.after(10 * time.Minute)
		r.expect("34m46s t1 breaker.closed") // five minutes after it last closed
		if len(r.kept) != 0 || len(r.a.held) != 0 {
			t.Errorf("left: %v %v", r.kept, r.a.held)
		}
		r.breaker(7, delivery.BreakerOpen, "a")
		r.expect("40m1s t1 breaker.opened") // another episode
	})
}

func TestPayloadsSayWhatHappened(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		at := time.Now().UTC()
		r.breaker(7, delivery.BreakerOpen, "a")
		r.died(1, "a")
		r.a.disabled(1, 8, delivery.ReasonGone, at)
		r.node = 9
		r.a.disk(1, 100, true)
		synctest.Wait()
		want := []any{
			DiskFull{Node: "n", FreeBytes: 1, TotalBytes: 100, At: at},
			SubscriberDisabled{Subscriber: "s8", Reason: "gone", At: at},
			BreakerOpened{Subscriber: "s7", Why: "consecutive_failures", At: at, RetryAt: at.Add(time.Minute)},
			DeadLettersGrowing{Subscriber: "s7", Count: 1, Since: at, Reason: "exhausted", At: at},
		}
		got := slices.Clone(r.data)
		slices.SortFunc(got, func(x, y any) int { return rankOf(x) - rankOf(y) })
		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	})
}

func rankOf(data any) int {
	switch data.(type) {
	case DiskFull:
		return 0
	case SubscriberDisabled:
		return 1
	case BreakerOpened:
		return 2
	default:
		return 3
	}
}

func TestDeadLettersAreToldOfAtTheFirstAndThenTenfold(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		var counts []int64
		for range 1000 { // one each second
			r.died(1, "a")
			r.after(time.Second)
		}
		for _, d := range r.data {
			growing, _ := d.(DeadLettersGrowing)
			counts = append(counts, growing.Count)
		}
		if len(counts) != 3 || counts[0] != 1 || counts[1] < 10 || counts[2] != 10*counts[1] {
			t.Errorf("counts %v", counts)
		}
		r.told, r.data = nil, nil
		r.after(deadQuiet + time.Second)
		if len(r.a.held) != 0 || len(r.kept) != 0 {
			t.Errorf("an hour without any, and still held: %v %v", r.a.held, r.kept)
		}
		r.died(1, "a")
		r.expect(fmt.Sprintf("%v t1 dead_letters.growing", time.Since(r.began)))
	})
}

func TestOperationalEventsThatFailMakeNone(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		for _, topic := range OperationalTopics() {
			r.breaker(7, delivery.BreakerOpen, topic)
			r.died(1, topic)
		}
		key := delivery.EventKey{15: 1}
		r.topics[key] = TopicBreakerOpened
		r.a.died(1, 7, delivery.ReasonExpired, "", key) // known by its key alone
		r.a.died(1, 7, delivery.ReasonExpired, "", delivery.EventKey{})
		r.after(2 * time.Hour)
		r.expect()
		// Others fail there as well, later: those count.
		r.breaker(7, delivery.BreakerOpen, "a")
		other := delivery.EventKey{15: 2}
		r.topics[other] = "a"
		r.a.died(1, 7, delivery.ReasonExpired, "", other)
		r.after(2 * time.Second)
		r.expect("2h0m0s t1 breaker.opened", "2h0m1s t1 dead_letters.growing")
		if isAlarm(topicTest) || isAlarm(originTopic) || isAlarm("order.created") {
			t.Error("a test, a handover to an origin and an event of a publisher are somebody's deliveries")
		}
	})
}

func TestRestartRepeatsNoAlarmAndForgetsNone(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.node = 9
		r.after(time.Second)
		for _, sub := range []delivery.SubscriberNum{7, 8} {
			r.breaker(sub, delivery.BreakerOpen, "a")
		}
		r.a.disk(1, 100, true)
		r.died(1, "a")
		r.after(time.Minute)
		if len(r.told) != 4 {
			t.Fatalf("%q", r.told)
		}
		r.told = nil
		r.stop()
		r.isOpen[7] = true // 8 closed, and the node died before it was well for long
		r.start()
		r.a.disk(1, 100, true)
		r.breaker(7, delivery.BreakerOpen, "a") // a probe failed
		r.died(8, "a")
		r.after(4 * time.Minute)
		r.expect()
		r.after(2 * time.Minute)
		r.expect("6m1s t1 breaker.closed") // 8
		r.died(1, "a")
		synctest.Wait() // else a look may come between this and the next
		r.a.disk(50, 100, false)
		r.breaker(7, delivery.BreakerClosed, "a")
		r.after(6 * time.Minute)
		r.expect("7m1s t1 dead_letters.growing", "12m1s t9 disk.watermark_left", "12m1s t1 breaker.closed")
	})
}

func TestWhatCannotBePublishedWaitsAndWhatIsOverByThenIsNotTold(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		r.refuses = &UnavailableError{Reason: "full"}
		r.breaker(7, delivery.BreakerOpen, "a")
		r.breaker(8, delivery.BreakerOpen, "a")
		r.a.disabled(1, 9, delivery.ReasonGone, time.Now())
		r.after(10 * time.Minute)
		r.breaker(8, delivery.BreakerClosed, "a")
		delayed := r.results[OperationalDelayed]
		if delayed < 5 || delayed > 20 {
			t.Errorf("tried %d times in ten minutes", delayed)
		}
		r.after(5 * time.Second)
		r.refuses = nil
		r.after(alarmMost)
		if len(r.told) != 2 || !strings.HasSuffix(r.told[0], "subscriber.disabled") || !strings.HasSuffix(r.told[1], "breaker.opened") {
			t.Errorf("told %q", r.told)
		}
		if opened, _ := r.data[1].(BreakerOpened); opened.Subscriber != "s7" {
			t.Errorf("%+v", r.data)
		}
	})
}

func TestStopTellsWhatItCanAndNeverWaits(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		r.breaker(7, delivery.BreakerOpen, "a")
		synctest.Wait()
		r.a.disabled(1, 9, delivery.ReasonGone, time.Now()) // within the second that the next look waits
		before := time.Now()
		r.restart()
		if took := time.Since(before); took != 0 {
			t.Errorf("stop took %v", took)
		}
		r.expect("1s t1 breaker.opened", "1s t1 subscriber.disabled")
		r.refuses = errors.Join(context.DeadlineExceeded)
		r.a.disabled(1, 10, delivery.ReasonGone, time.Now())
		synctest.Wait()
	})
}

func TestStormIsBoundedPerTenantAndReachesNoOther(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.deaf[2] = true
		for sub := delivery.SubscriberNum(1); sub <= 3000; sub++ {
			r.breaker(sub, delivery.BreakerOpen, "a")
			r.a.died(2, 10_000+sub, delivery.ReasonExhausted, "a", delivery.EventKey{}) // nobody listens there
		}
		r.a.died(3, 99_999, delivery.ReasonExhausted, "a", delivery.EventKey{})
		if n := len(r.a.held); n > 2*maxTenantAlarms+1 {
			t.Errorf("%d are held", n)
		}
		r.after(time.Second)
		count := func(tenant string) (n int) {
			for _, told := range r.told {
				if strings.Contains(told, " "+tenant+" ") {
					n++
				}
			}
			return n
		}
		if count("t1") != alarmBurst || count("t2") != 0 || count("t3") != 1 {
			t.Errorf("told t1 %d, t2 %d, t3 %d times", count("t1"), count("t2"), count("t3"))
		}
		r.after(time.Hour)
		if n := count("t1"); n < alarmBurst+59 || n > alarmBurst+61 {
			t.Errorf("after an hour %d", n)
		}
		asked := r.asked
		for sub := delivery.SubscriberNum(1); sub <= 3000; sub++ {
			r.a.died(2, 10_000+sub, delivery.ReasonExhausted, "a", delivery.EventKey{})
		}
		r.after(2 * time.Second)
		if r.asked-asked > 10 {
			t.Errorf("asked %d times whether somebody listens in a tenant where nobody does", r.asked-asked)
		}
		r.deaf[2] = false
		r.a.changed(2, 5, false) // somebody subscribes
		r.a.died(2, 10_001, delivery.ReasonExhausted, "a", delivery.EventKey{})
		r.after(2 * time.Second)
		if count("t2") != 1 {
			t.Error("a tenant that began to listen does not hear")
		}
	})
}

func TestNodeIsHeardOfByItsOperatorAlone(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		for range 20 { // at the watermark
			r.a.disk(1, 100, true)
			r.after(5 * time.Second)
			r.a.disk(2, 100, false)
			r.after(5 * time.Second)
		}
		r.after(time.Hour)
		r.expect() // nobody is named
		r.node = 9
		for range 20 {
			r.a.disk(1, 100, true)
			r.after(5 * time.Second)
			r.a.disk(2, 100, false)
			r.after(5 * time.Second)
		}
		r.after(time.Hour)
		r.expect("1h3m21s t9 disk.watermark_reached", "1h11m36s t9 disk.watermark_left")
	})
}

func TestDeletedAndDisabledSubscribersAreForgotten(t *testing.T) {
	inAlarmRig(t, func(r *alarmRig) {
		r.after(time.Second)
		for sub := delivery.SubscriberNum(1); sub <= 3; sub++ {
			r.breaker(sub, delivery.BreakerOpen, "a")
		}
		r.after(time.Minute)
		r.told = nil
		r.a.disabled(1, 1, delivery.ReasonFailingTooLong, time.Now())
		r.forget(2)
		r.a.changed(1, 2, true)
		r.forget(3)
		r.breaker(3, delivery.BreakerClosed, "a")
		r.after(time.Hour)
		r.expect("1m1s t1 subscriber.disabled")
		if len(r.a.held) != 0 || len(r.kept) != 0 {
			t.Errorf("held %v, kept %v", r.a.held, r.kept)
		}
	})
}

func TestAlarmKeysSurviveTheirDocument(t *testing.T) {
	for kind := range rank {
		key := alarmKey{kind, 1<<64 - 1}
		if got, err := parseAlarmKey(key.doc().ID); err != nil || got != key {
			t.Errorf("%v: %v %v", key, got, err)
		}
	}
	for _, id := range []string{"", "breaker", "breaker/x", "other/1", "breaker/-1"} {
		if _, err := parseAlarmKey(id); err == nil {
			t.Errorf("%q is taken", id)
		}
	}
}
