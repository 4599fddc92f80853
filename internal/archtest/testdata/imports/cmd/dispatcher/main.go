package main

import (
	_ "github.com/dispatcher-engine/dispatcher/bench"
	_ "github.com/dispatcher-engine/dispatcher/engine"
	_ "github.com/dispatcher-engine/dispatcher/internal/testnet"
)
