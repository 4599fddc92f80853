package delivery

import (
	_ "example.test/store"
	_ "fmt"
	_ "github.com/dispatcher-engine/dispatcher/signing"
)
