package protoselect

import "context"

// Memory keeps what the selector learned across restarts. Keys and values are
// opaque to it.
type Memory interface {
	// Load calls each with every saved entry; an error of each ends it.
	Load(ctx context.Context, each func(key string, value []byte) error) error
	// Save stores the changes; a nil value deletes its key.
	Save(ctx context.Context, changes []MemoryChange) error
}

// MemoryChange is one entry to be stored or, with a nil Value, deleted.
type MemoryChange struct {
	Key   string
	Value []byte
}
