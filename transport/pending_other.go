//go:build !unix

package transport

import "syscall"

// socketPeek says that there is nothing to read: here only the reader finds out.
type socketPeek struct{}

func newSocketPeek(syscall.RawConn) *socketPeek { return &socketPeek{} }

func (*socketPeek) pending() bool { return false }
