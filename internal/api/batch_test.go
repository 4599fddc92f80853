package api

import (
	"encoding/json"
	"testing"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// What is written by hand is what the document says.
func TestAcceptedLinesAreWrittenAsTheirSchemaSays(t *testing.T) {
	for _, receipt := range []engine.Receipt{
		{ID: "a~b:c_d-1", Deliveries: 12}, {ID: "e"}, {ID: "e", Deliveries: 3, Deduplicated: true}, {},
	} {
		want := batchLine{Line: 1234, ID: receipt.ID, Status: 202, Deliveries: &receipt.Deliveries}
		if receipt.Deduplicated {
			want.Status, want.Deliveries, want.Deduplicated = 200, nil, true
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		a := batchAnswer{line: 1234, id: receipt.ID, receipt: receipt}
		if got := a.append(nil); string(got) != string(text)+"\n" {
			t.Errorf("%s, not %s", got, text)
		}
	}
}
