package guide

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// TestEveryOperationalEventIsDocumentedWithItsFields holds the table in
// docs/operations.md against the payloads.
func TestEveryOperationalEventIsDocumentedWithItsFields(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	payloads := map[string]any{
		engine.TopicSubscriberDisabled: engine.SubscriberDisabled{}, engine.TopicBreakerOpened: engine.BreakerOpened{},
		engine.TopicBreakerClosed: engine.BreakerClosed{}, engine.TopicDeadLetters: engine.DeadLettersGrowing{},
		engine.TopicDiskFull: engine.DiskFull{}, engine.TopicDiskRoom: engine.DiskRoom{},
	}
	for _, topic := range engine.OperationalTopics() {
		row := ""
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "| `"+topic+"` |") {
				row = line
			}
		}
		payload := payloads[topic]
		if row == "" || payload == nil {
			t.Errorf("%s is not in the table of docs/operations.md, or has no payload here", topic)
			continue
		}
		for field := range reflect.TypeOf(payload).Fields() {
			if name := field.Tag.Get("json"); !strings.Contains(row, "`"+name+"`") {
				t.Errorf("docs/operations.md does not show %s of %s", name, topic)
			}
		}
	}
}
