package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReloadTakesOverWhatItCanAndKeepsTheOldOneWhenTheNewIsWrong sends SIGHUP to a
// real node.
func TestReloadTakesOverWhatItCanAndKeepsTheOldOneWhenTheNewIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "dispatcher.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	node := serve(t, filepath.Join(dir, "data"), "--config", file)
	hangup := func(says string) {
		t.Helper()
		before := strings.Count(node.logged(), says)
		if err := node.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, says, func() bool { return strings.Count(node.logged(), says) > before })
	}
	opens := func(token string) bool {
		node.token = token
		status, _ := node.try(http.MethodGet, "/v1/tokens/self", nil)
		return status == http.StatusOK
	}
	made := node.token
	write("api_token: another-token-0123456789abcdef\nlog: {level: debug}\nstorage: {cache: 64MiB}\n")
	hangup(`needs_restart=[storage.cache]`)
	if !strings.Contains(node.logged(), "changed=\"[api_token log.level]\"") {
		t.Errorf("what changed is not said: %s", node.logged())
	}
	if opens(made) || !opens("another-token-0123456789abcdef") {
		t.Error("the token was not taken over")
	}
	write("api_token: third-token-0123456789abcdef\nlog: {level: loud}\n")
	hangup("configuration_not_reloaded")
	if !opens("another-token-0123456789abcdef") {
		t.Error("a wrong file changed something")
	}
	write("")
	hangup("configuration_reloaded")
	if !opens(made) || opens("another-token-0123456789abcdef") {
		t.Error("without a configured token, the node's own does not open it again")
	}
	if log := node.logged(); strings.Contains(log, "another-token") || strings.Contains(log, "third-token") {
		t.Error("the log holds a token")
	}
}
