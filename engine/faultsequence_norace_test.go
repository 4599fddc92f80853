//go:build !race

package engine

// faultSequences is how many are run; the race detector makes each cost several
// times as much.
const faultSequences = 2000
