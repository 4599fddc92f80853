//go:build !unix

package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockFile relies on the system refusing to remove a file that is open.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
