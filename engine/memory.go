package engine

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// protocolMemory keeps what the selector learned, as documents of the node.
type protocolMemory struct{ registry *storage.Registry }

const protocolKind = "protocol"

// Load implements protoselect.Memory.
func (m protocolMemory) Load(ctx context.Context, each func(key string, value []byte) error) error {
	const page = 1000
	for after := ""; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, next, err := m.registry.ListDocs(0, protocolKind, after, page)
		if err != nil {
			return fmt.Errorf("load protocol memory: %w", err)
		}
		for _, row := range rows {
			key, err := base64.RawURLEncoding.DecodeString(row.Value.Key.ID)
			if err != nil || row.Err != nil {
				continue // a damaged row is a forgotten alternative, nothing worse
			}
			if err := each(string(key), row.Value.Body); err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

// Save implements protoselect.Memory.
func (m protocolMemory) Save(_ context.Context, changes []protoselect.MemoryChange) error {
	writes := make([]storage.DocWrite, len(changes))
	for i, c := range changes {
		id := base64.RawURLEncoding.EncodeToString([]byte(c.Key))
		writes[i] = storage.DocWrite{
			Key: storage.DocKey{Kind: protocolKind, ID: id}, Body: c.Value, Delete: c.Value == nil, Expect: storage.AnyVersion,
		}
	}
	if _, err := m.registry.WriteDocs(writes); err != nil {
		return fmt.Errorf("save protocol memory: %w", err)
	}
	return nil
}
