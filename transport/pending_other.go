//go:build !unix

package transport

import "syscall"

// pending says that there is nothing to read: here only the reader finds out.
func pending(syscall.RawConn) bool { return false }
