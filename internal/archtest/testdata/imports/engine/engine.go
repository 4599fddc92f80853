package engine

import (
	_ "github.com/dispatcher-engine/dispatcher/bench"
	_ "github.com/dispatcher-engine/dispatcher/internal/archtest"
	_ "github.com/dispatcher-engine/dispatcher/storage"
	_ "github.com/dispatcher-engine/dispatcher/transport"
)
