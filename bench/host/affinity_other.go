//go:build !linux

package host

import "runtime"

// UseCores binds nothing outside of Linux.
func UseCores(int) (int, error) { return runtime.NumCPU(), nil }
