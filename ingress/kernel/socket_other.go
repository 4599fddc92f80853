//go:build !linux

package kernel

import "syscall"

// Inspect is not available on this system: [ErrUnsupported].
func Inspect(syscall.Conn) (Socket, error) { return Socket{}, ErrUnsupported }

// Listen is not available on this system: [ErrUnsupported].
func Listen(syscall.Conn, int) error { return ErrUnsupported }
