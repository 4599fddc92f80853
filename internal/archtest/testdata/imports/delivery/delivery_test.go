package delivery_test

import (
	_ "example.test/leak"
	_ "github.com/dispatcher-engine/dispatcher/delivery"
	_ "testing"
)
