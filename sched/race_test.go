//go:build race

package sched

// raceEnabled: the detector multiplies memory.
const raceEnabled = true
