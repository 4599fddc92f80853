//go:build !race

package engine

import "time"

// faultSequences is how many are run, and faultDeadline what a request gets that
// meets them; the race detector makes each cost several times as much.
const (
	faultSequences = 2000
	faultDeadline  = 120 * time.Millisecond

	matrixStride   = 1
	matrixParallel = 16
	matrixDeadline = time.Second
)
