//go:build real

package realtest

import (
	"os"
	"testing"
)

// environment returns a variable that scripts/test-real exports.
func environment(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run these tests with make test-real", name)
	}
	return value
}
