package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// hashBudget bounds the payload bytes that one page of a list reads for the hashes
// of its dead letters. Those that do not fit any more are listed without one.
const hashBudget = 32 << 20

// hashDead fills in the payload hashes of the dead letters among rows: what an
// operator tells payloads apart by without seeing them. Several dead letters of
// one event cost one reading.
func (e *Engine) hashDead(ctx context.Context, rows []DeliveryInfo) {
	budget := int64(hashBudget)
	known := map[delivery.EventKey]string{}
	for i := range rows {
		event := rows[i].Event
		if rows[i].State != delivery.StateDead || event == nil {
			continue
		}
		hash, ok := known[event.Key]
		if !ok && event.Size <= budget {
			budget -= event.Size
			hash = e.payloadHash(ctx, event.Key)
			known[event.Key] = hash
		}
		rows[i].PayloadHash = hash
	}
}

// payloadHash is the SHA-256 of a payload, "" if it is gone.
func (e *Engine) payloadHash(ctx context.Context, key delivery.EventKey) string {
	event, err := e.store.Event(ctx, key)
	if err != nil {
		return ""
	}
	h := sha256.New()
	if event.Spool == "" {
		h.Write(event.Payload)
		return hex.EncodeToString(h.Sum(nil))
	}
	body, err := e.store.OpenPayload(event.Spool)
	if err != nil {
		return ""
	}
	defer body.Close()
	if _, err := io.Copy(h, body); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
