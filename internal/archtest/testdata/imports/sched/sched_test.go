package sched

import (
	_ "example.test/store/vfs"
	_ "github.com/dispatcher-engine/dispatcher/internal/testnet"
	_ "github.com/dispatcher-engine/dispatcher/transport"
)
