package bench

import (
	"strings"
	"testing"
)

func TestMetricsAreReadByName(t *testing.T) {
	const text = "# HELP a x\n# TYPE a counter\na 12\nb{x=\"1\"} 3\nb_sum 1.5e-3\nnonsense\n"
	got, err := parseMetrics(strings.NewReader(text), "b_sum", "a")
	if err != nil || got[0] != 0.0015 || got[1] != 12 {
		t.Errorf("%v %v", got, err)
	}
	if _, err := parseMetrics(strings.NewReader(text), "c"); err == nil {
		t.Error("a metric that is missing was read")
	}
}
