package transport

import (
	_ "github.com/dispatcher-engine/dispatcher/internal/netguard"
	_ "github.com/dispatcher-engine/dispatcher/internal/testnet"
)
