package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// shown are the files that name our metrics.
var shown = []string{"../../deploy/prometheus/dispatcher.rules.yaml", "../../deploy/grafana/dispatcher.json", "../../docs/monitoring.md"}

// series is a metric's name with its selector, which is empty without one.
var series = regexp.MustCompile(`\b(dispatcher_[a-z0-9_]+|process_[a-z_]+|go_[a-z_]+)(?:\{([^}]*)\})?`)

var matcher = regexp.MustCompile(`(\w+)(=~|!=|=)\\?"([^"\\]*)\\?"`)

// TestEveryMetricThatRulesAndDashboardNameIsThere asks a real node that has
// delivered something and has dead letters. A label's value that is named has to
// be there, too: a rule for a value that never comes never fires.
func TestEveryMetricThatRulesAndDashboardNameIsThere(t *testing.T) {
	receiver := receiverThat(t, testnet.Behaviour{Status: http.StatusBadRequest})
	node := serve(t, t.TempDir(), "--allow-private", "127.0.0.0/8", "--allow-http")
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h")}, nil)
	node.publish("t", "m", 3)
	var metrics string
	eventually(t, 30*time.Second, "dead letters are counted", func() bool {
		_, body := node.try(http.MethodGet, "/metrics", nil)
		metrics = string(body)
		return strings.Contains(metrics, `dispatcher_tenant_dead_letters{tenant="t"} 3`)
	})
	named := 0
	for _, file := range shown {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
		for _, m := range series.FindAllStringSubmatch(string(text), -1) {
			named++
			// A histogram may be named as a whole.
			if !regexp.MustCompile(`(?m)^` + m[1] + `(_bucket)?[{ ]`).MatchString(metrics) {
				t.Errorf("%s names %s, which the node does not have", file, m[1])
				continue
			}
			for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
				for value := range strings.SplitSeq(label[3], "|") {
					has := regexp.MustCompile(`(?m)^` + m[1] + `\{[^}]*\b` + label[1] + `="` + regexp.QuoteMeta(value) + `"`)
					if label[1] != "job" && label[1] != "instance" && !has.MatchString(metrics) {
						t.Errorf("%s: %s has no series with %s=%q", file, m[1], label[1], value)
					}
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("%d series were found in rules and dashboard", named)
	}
}
