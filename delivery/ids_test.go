package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var testKey = EventKey{0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, 0x70, 1, 0x80, 2, 3, 4, 5, 6, 7, 8}

func TestEventKeyCarriesItsTimeAndParsesBack(t *testing.T) {
	if got := testKey.Time(); !got.Equal(time.UnixMilli(1700000000000)) {
		t.Errorf("time %v", got)
	}
	s := testKey.String()
	if s != "018bcfe5-6800-7001-8002-030405060708" {
		t.Errorf("string %q", s)
	}
	for _, form := range []string{s, strings.ToUpper(s)} {
		if back, err := ParseEventKey(form); err != nil || back != testKey {
			t.Errorf("parse %q: %v %v", form, back, err)
		}
	}
	text, err := json.Marshal(testKey)
	if err != nil || string(text) != `"`+s+`"` {
		t.Errorf("json %s %v", text, err)
	}
	var back EventKey
	if err := json.Unmarshal(text, &back); err != nil || back != testKey {
		t.Errorf("json back %v %v", back, err)
	}
	for _, bad := range []string{"", s[:35], s + "0", strings.ReplaceAll(s, "-", "_"), "zz" + s[2:], strings.Repeat("9", 9999)} {
		if _, err := ParseEventKey(bad); !errors.Is(err, ErrBadID) || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func TestDeliveryIDParsesBackAndRefusesAmbiguity(t *testing.T) {
	id := ID{Event: testKey, Subscriber: "ep_1-a"}
	if back, err := ParseID(id.String()); err != nil || back != id {
		t.Errorf("%v %v", back, err)
	}
	for _, bad := range []string{"", testKey.String(), testKey.String() + ".", testKey.String() + ".a.b", "x.ep", testKey.String() + ".a/b"} {
		if _, err := ParseID(bad); !errors.Is(err, ErrBadID) {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestEventIDsRefuseWhatWouldBreakTheSignedContent(t *testing.T) {
	for _, ok := range []string{"a", "evt_1", "A~b:c-D_9", strings.Repeat("x", 256)} {
		if err := CheckEventID(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "a.b", "a b", "a\n", "ü", "a/b", strings.Repeat("x", 257)} {
		if err := CheckEventID(bad); !errors.Is(err, ErrBadID) {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, bad := range []string{"", "a.b", "a:b", "a~b", "..", strings.Repeat("x", 129)} {
		if err := CheckName(bad); !errors.Is(err, ErrBadID) {
			t.Errorf("name %q was accepted", bad)
		}
	}
}

func TestPartitionsAreEvenAndFixed(t *testing.T) {
	counts := make([]int, DefaultPartitions)
	for n := range SubscriberNum(256 * 100) {
		counts[PartitionOf(n+1, DefaultPartitions)]++
	}
	for p, n := range counts {
		if n < 60 || n > 150 {
			t.Errorf("partition %d has %d of an expected 100", p, n)
		}
	}
	if got := [3]Partition{PartitionOf(1, 256), PartitionOf(2, 256), PartitionOf(3, 256)}; got != wantPartitions {
		t.Errorf("the format's mapping changed: %v, want %v", got, wantPartitions)
	}
}

func TestHashKeyIsFixedAndNeverZero(t *testing.T) {
	if HashKey("") != 0 {
		t.Error("no key is zero")
	}
	if HashKey("order-1") == HashKey("order-2") {
		t.Error("two keys collide")
	}
	if got := HashKey("order-1"); got != wantHash {
		t.Errorf("the format's hash changed: %#x", uint64(got))
	}
}

func TestTopicPatterns(t *testing.T) {
	cases := []struct {
		pattern, topic string
		want           bool
	}{
		{"*", "order.created", true},
		{"*", "dispatcher.subscriber.disabled", false},
		{"dispatcher.*", "dispatcher.subscriber.disabled", true},
		{"order.*", "order.created", true},
		{"order.*", "order.created.eu", true},
		{"order.*", "order", false},
		{"order.*", "order.", false},
		{"order.*", "orders.created", false},
		{"order.created", "order.created", true},
		{"order.created", "order.created.eu", false},
		{"ord*", "order", false},
		{"*", "", false},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s~%s", c.pattern, c.topic), func(t *testing.T) {
			if got := MatchTopic(c.pattern, c.topic); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPriorityNeverOvertakesOrder(t *testing.T) {
	event := &Event{OrderingKey: "k", Priority: PriorityHigh, PrioritySet: true}
	free := &Event{Priority: PriorityHigh, PrioritySet: true}
	keyed := &Subscriber{Priority: PriorityLow}
	if keyed.Lane(event) != PriorityNormal || keyed.Effective(PriorityNormal) != PriorityLow {
		t.Error("a keyed row stands in the common lane")
	}
	if keyed.Lane(free) != PriorityHigh || keyed.Effective(PriorityHigh) != PriorityHigh {
		t.Error("a free row takes the lane its publisher named")
	}
	strict := &Subscriber{Ordering: OrderingStrict}
	if strict.Lane(free) != PriorityNormal || strict.KeyFor("") != StrictKey {
		t.Error("a strict subscriber has one lane and one key")
	}
	if none := (&Subscriber{Ordering: OrderingNone}); none.KeyFor("k") != 0 || none.Lane(event) != PriorityHigh {
		t.Error("an unordered subscriber has no keys")
	}
}

func TestSecretsHideFromEveryVerb(t *testing.T) {
	s := Secret{Value: "whsec_hidden"}
	sub := &Subscriber{Signing: []SigningScheme{{Secrets: []Secret{s}}}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		if out := fmt.Sprintf(verb, s) + fmt.Sprintf(verb, *sub); strings.Contains(out, "hidden") {
			t.Errorf("%s shows a secret: %s", verb, out)
		}
	}
}
