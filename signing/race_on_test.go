//go:build race

package signing

// raceAllocs is room for what the race detector does to sync.Pool.
const raceAllocs = 12
