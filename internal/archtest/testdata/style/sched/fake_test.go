package sched

import "time"

// slowly serves the tests in bubbles.
func slowly() { time.Sleep(time.Second) }
