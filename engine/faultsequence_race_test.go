//go:build race

package engine

import "time"

const (
	faultSequences = 300
	faultDeadline  = 500 * time.Millisecond
)
