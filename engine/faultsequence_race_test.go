//go:build race

package engine

import "time"

const (
	faultSequences = 300
	faultDeadline  = 500 * time.Millisecond

	// The detector makes handshakes five times as slow: a part of the matrix is
	// met, with more time. What is raced is the same code in all rows.
	matrixStride   = 4
	matrixParallel = 4
	matrixDeadline = 3 * time.Second
)
