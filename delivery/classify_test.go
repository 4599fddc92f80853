package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestClassifyEveryStatus walks every status that HTTP allows, so that no
// answer is without a row of the design's table.
func TestClassifyEveryStatus(t *testing.T) {
	mendable := []int{401, 403, 404, 407, 409, 421, 423, 424}
	for status := 100; status <= 999; status++ {
		got := Classify(Result{Status: status, Sent: SentProcessed}, noon)
		want := Outcome{Class: ClassRetry, Reason: ReasonStatusRetry, Failure: true}
		switch {
		case status >= 200 && status <= 299:
			want = Outcome{Class: ClassDelivered, Reason: ReasonDelivered}
		case status >= 300 && status <= 399:
			want.Reason = ReasonRedirect
		case status == 410:
			want = Outcome{Class: ClassGone, Reason: ReasonGone, Failure: true}
		case status == 408 || status == 425:
		case status == 429:
			want = Outcome{Class: ClassThrottled, Reason: ReasonThrottled}
		case slices.Contains(mendable, status):
			want.Reason = ReasonStatusMendable
		case status >= 400 && status <= 499, status == 501, status == 505:
			want = Outcome{Class: ClassRejected, Reason: ReasonRejected, Failure: true}
		}
		if got != want {
			t.Errorf("%d: got %+v, want %+v", status, got, want)
		}
	}
}

func TestClassifyFailures(t *testing.T) {
	cases := []struct {
		name string
		in   Result
		want Outcome
	}{
		{"nothing known is unknown", Result{}, Outcome{Class: ClassUnknown, Reason: ReasonUnknown, Failure: true}},
		{"dns", Result{Sent: SentNever, Cause: CauseDNS}, Outcome{Class: ClassRetry, Reason: ReasonDNSFailed, Failure: true}},
		{"connect", Result{Sent: SentNever, Cause: CauseConnect}, Outcome{Class: ClassRetry, Reason: ReasonConnectFailed, Failure: true}},
		{"proxy", Result{Sent: SentNever, Cause: CauseProxy}, Outcome{Class: ClassRetry, Reason: ReasonConnectFailed, Failure: true}},
		{"handshake deadline", Result{Sent: SentNever, Cause: CauseTimeout}, Outcome{Class: ClassRetry, Reason: ReasonConnectFailed, Failure: true}},
		{"certificate", Result{Sent: SentNever, Cause: CauseTLS}, Outcome{Class: ClassRetry, Reason: ReasonTLSFailed, Failure: true}},
		{"no stream", Result{Sent: SentNever, Cause: CauseStreams}, Outcome{Class: ClassRetry, Reason: ReasonNotSent, Failure: true}},
		{"refused by the peer", Result{Sent: SentRefused, Cause: CauseReset}, Outcome{Class: ClassRetry, Reason: ReasonRefused, Failure: true}},
		{"reset after bytes left", Result{Sent: SentAmbiguous, Cause: CauseReset}, Outcome{Class: ClassUnknown, Reason: ReasonUnknown, Failure: true}},
		{"deadline after bytes left", Result{Sent: SentAmbiguous, Cause: CauseTimeout}, Outcome{Class: ClassUnknown, Reason: ReasonTimeout, Failure: true}},
		{"literal address denied", Result{Sent: SentNever, Cause: CausePolicyLiteral}, Outcome{Class: ClassBlocked, Reason: ReasonBlocked, Failure: true}},
		{"dns answer denied", Result{Sent: SentNever, Cause: CausePolicy}, Outcome{Class: ClassRetry, Reason: ReasonBlockedDNS, Failure: true}},
		{"shutdown before a byte", Result{Sent: SentNever, Cause: CauseShutdown}, Outcome{Class: ClassInterrupted, Reason: ReasonInterrupted}},
		{"shutdown after bytes", Result{Sent: SentAmbiguous, Cause: CauseShutdown}, Outcome{Class: ClassInterrupted, Reason: ReasonInterrupted}},
		{"no ports is not the peer's fault", Result{Sent: SentNever, Cause: CausePorts}, Outcome{Class: ClassRetry, Reason: ReasonPortExhausted}},
		{"our own fault", Result{Sent: SentNever, Cause: CauseLocal}, Outcome{Class: ClassRetry, Reason: ReasonLocalError}},
		{"node died", Result{Cause: CauseRecovered}, Outcome{Class: ClassUnknown, Reason: ReasonRecovered}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Classify(c.in, noon); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRetryAfterThrottlesEveryRetryableAnswerAndNoOther(t *testing.T) {
	for _, status := range []int{408, 425, 429, 500, 503, 401, 404, 302} {
		got := Classify(Result{Status: status, RetryAfter: "30"}, noon)
		if got.Class != ClassThrottled || got.RetryAfter != 30*time.Second || got.Failure {
			t.Errorf("%d: %+v", status, got)
		}
	}
	for _, status := range []int{200, 400, 410, 422, 501} {
		if got := Classify(Result{Status: status, RetryAfter: "30"}, noon); got.RetryAfter != 0 || got.Class == ClassThrottled {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	in90 := noon.Add(90 * time.Second)
	imf := "Mon, 02 Jan 2006 15:04:05 GMT"
	cases := []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"30", "", 30 * time.Second, true},
		{" 30\t", "", 30 * time.Second, true},
		{"0", "", 0, true},
		{"86401", "", MaxRetryAfter, true},
		{"99999999999999999999999999", "", MaxRetryAfter, true},
		{in90.Format(imf), "", 90 * time.Second, true},
		{in90.Format("Monday, 02-Jan-06 15:04:05 GMT"), "", 90 * time.Second, true},
		{in90.Format("Mon Jan _2 15:04:05 2006"), "", 90 * time.Second, true},
		{in90.Format(imf), noon.Add(30 * time.Second).Format(imf), time.Minute, true}, // the peer's own clock
		{in90.Format(imf), "nonsense", 90 * time.Second, true},
		{noon.Add(1000 * time.Hour).Format(imf), "", MaxRetryAfter, true},
		{noon.Add(-time.Hour).Format(imf), "", 0, false},
		{noon.Format(imf), "", 0, false},
		{"", "", 0, false}, {"1.5", "", 0, false}, {"+3", "", 0, false}, {"-3", "", 0, false},
		{"1e300", "", 0, false}, {"inf", "", 0, false}, {"NaN", "", 0, false}, {"soon", "", 0, false}, {"3 s", "", 0, false},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%q", c.value), func(t *testing.T) {
			if got, ok := ParseRetryAfter(c.value, c.date, noon); got != c.want || ok != c.ok {
				t.Errorf("got %v %v, want %v %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"30", "1e300", "Sun, 01 Mar 2026 12:01:30 GMT", "-1", "\xff"} {
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		wait, ok := ParseRetryAfter(value, date, noon)
		if wait < 0 || wait > MaxRetryAfter || !ok && wait != 0 {
			t.Errorf("%q %q: %v %v", value, date, wait, ok)
		}
	})
}
