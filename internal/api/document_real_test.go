//go:build real

package api

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRealOpenAPIDocumentPassesALinter holds the document that a node serves
// against the rules of internal/realtest/openapi.
func TestRealOpenAPIDocumentPassesALinter(t *testing.T) {
	dir := os.Getenv("DISPATCHER_REAL_OPENAPI")
	if dir == "" {
		t.Fatal("DISPATCHER_REAL_OPENAPI is not set: run these tests with make test-real")
	}
	s, err := New(undeployed{}, Config{Tokens: []string{"not a token: nothing is served"}})
	if err != nil {
		t.Fatal(err)
	}
	s.api.OpenAPI().Info.Version = "1.0.0"
	raw, err := json.MarshalIndent(s.api.OpenAPI(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	lint := exec.CommandContext(t.Context(), "node", "node_modules/@redocly/cli/bin/cli.js", "lint", "openapi.json", "--max-problems=100")
	lint.Dir = dir
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("redocly lint: %v\n%s", err, out)
	}
}
