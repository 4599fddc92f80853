package storage

import "time"

// slowly serves tests that know no bubble.
func slowly() { time.Sleep(time.Second) }
