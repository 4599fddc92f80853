//go:build !linux

package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Join is only known on Linux.
func Join(uintptr, []netip.Addr) error { return fmt.Errorf("join link: %w", errors.ErrUnsupported) }

// Socket is only known on Linux.
func Socket() (parent, child *os.File, err error) {
	return nil, nil, fmt.Errorf("socket for the device: %w", errors.ErrUnsupported)
}

// Receive is only known on Linux.
func Receive(*os.File) (*os.File, error) {
	return nil, fmt.Errorf("receive device: %w", errors.ErrUnsupported)
}

// Congestion is only known on Linux.
func Congestion() []string { return nil }

// SetCongestion is only known on Linux.
func SetCongestion(_ syscall.RawConn, name string) error {
	return fmt.Errorf("congestion control %q: %w", name, errors.ErrUnsupported)
}

// LargeBuffer is only known on Linux.
func LargeBuffer(*net.UDPConn) error { return errors.ErrUnsupported }
