//go:build !linux

package worker

import (
	"errors"
	"fmt"
	"syscall"
)

func attributes(ns Namespace) (*syscall.SysProcAttr, error) {
	if ns != Shared {
		return nil, fmt.Errorf("network namespaces: %w", errors.ErrUnsupported)
	}
	return nil, nil
}
