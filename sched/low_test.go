package sched

import (
	"testing"
	"time"
)

// TestWhenAPageIsDue: the next page of a lane is read when a quarter is left, and
// before that, from a half on, when what is left would not last until it is there.
func TestWhenAPageIsDue(t *testing.T) {
	const want = 64
	for _, c := range []struct {
		name       string
		page, left int
		took       time.Duration // for what was used of the page
		due        bool
	}{
		{"more than half is left", 64, 33, time.Millisecond, false},
		{"half is left and goes quickly", 64, 32, 32 * time.Millisecond, true},
		{"half is left and lasts", 64, 32, time.Second, false},
		{"what is left lasts just as long as a page takes", 64, 32, pageWithin, false},
		{"what is left lasts a little less", 64, 32, pageWithin - time.Microsecond, true},
		{"a quarter is left and lasts", 64, 16, time.Hour, true},
		{"more than a quarter is left and lasts", 64, 17, time.Hour, false},
		{"nothing is left", 64, 0, time.Hour, true},
		{"no page has come yet", 0, 32, time.Hour, true},
		{"more came with publishes than was used", 20, 32, time.Hour, true},
	} {
		l := lane{page: c.page, rows: c.left, pageAt: 7}
		if got := l.lowLocked(want, instant(7).add(c.took)); got != c.due {
			t.Errorf("%s: due is %v", c.name, got)
		}
	}
}
