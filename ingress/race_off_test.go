//go:build !race

package ingress

// raceDetector: the test binary is as fast as the product.
const raceDetector = false
