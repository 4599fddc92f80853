//go:build !linux

package link

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
)

func exactly() func() { return func() {} }

func sleepUntil(at time.Duration) { time.Sleep(at - host.Now()) }
