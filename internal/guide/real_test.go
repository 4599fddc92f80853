//go:build real

package guide

import (
	"strings"
	"testing"
)

// TestRealGuides runs the documents that call curl or openssl.
func TestRealGuides(t *testing.T) {
	for _, d := range documents(t) {
		if d.Needs() {
			t.Run(strings.TrimSuffix(d.Path, ".md"), func(t *testing.T) { play(t, d) })
		}
	}
}
