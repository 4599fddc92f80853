package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promise is a test that the README names beside one of its promises.
var promise = regexp.MustCompile("`([a-z/]+): (Test[A-Za-z0-9]+)`")

// TestEveryPromiseOfTheReadmeNamesATestThatExists: a promise without its test is
// an advertisement.
func TestEveryPromiseOfTheReadmeNamesATestThatExists(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(root))
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := promise.FindAllStringSubmatch(string(text), -1)
	if len(found) < 8 {
		t.Errorf("the README has 8 promises and names %d tests", len(found))
	}
	for _, m := range found {
		if !declares(t, filepath.Join(dir, m[1]), m[2]) {
			t.Errorf("the README names %s in %s, which does not exist", m[2], m[1])
		}
	}
}

func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Clean(f))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+test+"(") {
			return true
		}
	}
	return false
}
