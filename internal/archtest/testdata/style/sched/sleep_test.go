package sched

import (
	"testing"
	clock "time"
)

func TestGuesses(t *testing.T) {
	clock.Sleep(clock.Second)
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("inner", func(t *testing.T) { t.SkipNow() })
	parser{}.Skip()
}

func FuzzSkips(f *testing.F) {
	f.Skipf("not %s", "today")
}

type parser struct{}

func (parser) Skip() {}
