package sched

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(rand.IntN(10)))
	})
}
