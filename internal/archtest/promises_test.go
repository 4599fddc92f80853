package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promise is a test that a document names beside one of its promises.
var promise = regexp.MustCompile("`([a-z/0-9]+): (Test[A-Za-z0-9]+)`")

// TestEveryPromiseNamesATestThatExists: a promise without its test is an
// advertisement.
func TestEveryPromiseNamesATestThatExists(t *testing.T) {
	guides, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, name := range append(guides, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range promise.FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(name)]++
			if !declares(t, filepath.Join(root, m[1]), m[2]) {
				t.Errorf("%s names %s in %s, which does not exist", name, m[2], m[1])
			}
		}
	}
	for _, name := range []string{"README.md", "guarantees.md"} {
		if found[name] < 8 {
			t.Errorf("%s has 8 promises and names %d tests", name, found[name])
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
