package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

func TestDoctorExitsWithTheVerdict(t *testing.T) {
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	verify, err := verifier("standard", secret)
	if err != nil {
		t.Fatal(err)
	}
	r, err := testnet.Start(testnet.Config{Certificate: &cert, HTTP3: true, Verify: func(h http.Header, b []byte) error { return verify(h, b) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DISPATCHER_SECRET", "")
	url := r.URL("", "/in?t=hidden")
	good := []string{"doctor", url, "--allow-private", "127.0.0.0/8", "--ca", caFile}

	if got := run(t, "", append(good, "--post", "--secret-file", secretFile)...); got.status != ExitOK ||
		!strings.Contains(got.out, "a delivery works") || !strings.Contains(got.out, "alt-svc: h3=") || strings.Contains(got.out+got.err, "hidden") {
		t.Errorf("%+v", got)
	}
	got := run(t, "", append(good, "--json")...)
	var report struct {
		Works     bool
		Addresses []map[string]any
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || got.status != ExitOK || !report.Works || len(report.Addresses) != 1 {
		t.Errorf("%v %+v", err, got)
	}
	if got := run(t, "", "doctor", url); got.status != ExitFailed || !strings.Contains(got.out, "mend: ") || !strings.Contains(got.err, "would not work") {
		t.Errorf("%+v", got)
	}
	for says, args := range map[string][]string{
		"no secret":         append(good, "--post"),
		"--scheme":          append(good, "--post", "--secret-file", secretFile, "--scheme", "morse"),
		"--ca":              {"doctor", url, "--ca", secretFile},
		"go together":       append(good, "--client-cert", caFile),
		"--timeout":         append(good, "--timeout", "1ms"),
		"--allow-private":   {"doctor", url, "--allow-private", "10.0.0.1/8"},
		"one argument, URL": {"doctor"},
	} {
		if got := run(t, "", args...); got.status != ExitUsage || !strings.Contains(got.err, says) || got.out != "" {
			t.Errorf("%s: %+v", says, got)
		}
	}
	if c := r.Tally().Counts(); c.Requests != 1 || c.SignatureFailures != 0 {
		t.Errorf("%+v", c)
	}
}
