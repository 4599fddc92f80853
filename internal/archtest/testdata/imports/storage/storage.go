package storage

import (
	_ "example.test/store"
	_ "example.test/store/vfs"
	_ "github.com/dispatcher-engine/dispatcher/internal/netguard"
	_ "github.com/dispatcher-engine/dispatcher/internal/payloads"
)
