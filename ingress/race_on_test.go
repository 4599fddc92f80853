//go:build race

package ingress

// raceDetector: the test binary is many times slower at moving bytes.
const raceDetector = true
