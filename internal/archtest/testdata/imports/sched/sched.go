package sched

import (
	_ "example.test/leak"
	_ "example.test/unlisted"
	_ "github.com/dispatcher-engine/dispatcher/delivery"
	_ "github.com/dispatcher-engine/dispatcher/engine"
	_ "github.com/dispatcher-engine/dispatcher/sched/wheel"
	_ "github.com/dispatcher-engine/dispatcher/storage"
)
