package delivery

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// TraceLen is the length of a W3C traceparent of version 00.
const TraceLen = 55

// AttemptTrace returns the traceparent that one attempt sends: the event's trace,
// and a span id that is the same wherever it is computed. So the sender need not
// tell the exporter of spans, nor the timeline, which one it took. Without a
// well-formed traceparent of the event it returns "".
func AttemptTrace(traceparent string, event EventKey, sub SubscriberNum, attempt int) string {
	if len(traceparent) != TraceLen {
		return ""
	}
	const before, after = len("00-") + 32 + 1, len("00-") + 32 + 1 + 16
	var in [32]byte
	copy(in[:], event[:])
	binary.BigEndian.PutUint64(in[16:], uint64(sub))
	binary.BigEndian.PutUint64(in[24:], uint64(attempt)) //nolint:gosec // counts from one
	sum := sha256.Sum256(in[:])
	sum[0] |= 1 // a span id of zeros is invalid
	return strings.Join([]string{traceparent[:before], hex.EncodeToString(sum[:8]), traceparent[after:]}, "")
}
