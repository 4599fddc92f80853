package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// dispatcher runs the command line against the node with its token.
func (p *process) dispatcher(token string, args ...string) (stdout, stderr string, err error) {
	p.t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "DISPATCHER_TEST_AS_MAIN=1", "DISPATCHER_ADDR="+p.url, "DISPATCHER_API_TOKEN="+token)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestTokensFromTheCommandLineOpenWhatTheySay makes, uses, rotates and revokes a
// token of a real node, over a restart.
func TestTokensFromTheCommandLineOpenWhatTheySay(t *testing.T) {
	dir := t.TempDir()
	node := serve(t, dir)
	node.call(http.MethodPut, "/v1/tenants/t1", nil, nil)
	out, errs, err := node.dispatcher(node.token, "tokens", "create", "--name", "shop", "--scope", "publish", "--tenant", "t1")
	if err != nil || !strings.HasPrefix(out, "dsp_") || !strings.Contains(errs, "not shown again") {
		t.Fatalf("%v: %s %s", err, out, errs)
	}
	first := strings.TrimSpace(out)
	if _, errs, err := node.dispatcher(first, "events", "publish", "--tenant", "t1", "--topic", "a.b", "--payload", "{}"); err != nil {
		t.Errorf("publish: %v %s", err, errs)
	}
	_, errs, err = node.dispatcher(first, "subscribers", "list", "--tenant", "t1")
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 3 || !strings.Contains(errs, "read or admin") { //nolint:errorlint // as Run returns it
		t.Errorf("beyond its scope: %v %s", err, errs)
	}
	out, _, err = node.dispatcher(node.token, "tokens", "list", "--json")
	if err != nil || strings.Contains(out, first) {
		t.Fatalf("%v: %s", err, out)
	}
	var listed struct{ Data []struct{ ID, Name string } }
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed.Data) != 1 || listed.Data[0].Name != "shop" {
		t.Fatalf("%v: %s", err, out)
	}
	id := listed.Data[0].ID
	out, errs, err = node.dispatcher(node.token, "tokens", "rotate", id, "--keep", "0")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	second := strings.TrimSpace(out)
	node.kill()
	node = serve(t, dir)
	for token, opens := range map[string]bool{first: false, second: true} {
		if out, errs, err := node.dispatcher(token, "tokens", "show"); (err == nil) != opens {
			t.Errorf("opens %v: %s %s", opens, out, errs)
		}
	}
	if _, errs, err := node.dispatcher(node.token, "tokens", "revoke", id); err != nil {
		t.Fatalf("%v %s", err, errs)
	}
	if _, errs, err := node.dispatcher(second, "tokens", "show"); err == nil || !strings.Contains(errs, "not known") {
		t.Errorf("a revoked token: %v %s", err, errs)
	}
	if log := node.logged(); !strings.Contains(log, "api_token_revoked") || strings.Contains(log, second) {
		t.Errorf("the audit line is missing, or holds the token: %s", log)
	}
}
