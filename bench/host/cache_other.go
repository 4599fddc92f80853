//go:build !linux

package host

import (
	"errors"
	"fmt"
)

// Forget is only known on Linux.
func Forget(dir string) error { return fmt.Errorf("forget %s: %w", dir, errors.ErrUnsupported) }
