package sched

import (
	"math/rand"
	"time"
)

// Draw draws. TODO: seed it.
func Draw() interface{} {
	time.Sleep(time.Second) // a product may wait
	return rand.Int()
}

// Any is fine, and so is an interface with methods.
func Any(any, interface{ Len() int }) {}
