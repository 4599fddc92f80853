package worker

import (
	"os"
	"syscall"
)

// attributes make the kernel kill the child with its parent, and put it into
// its namespaces.
func attributes(ns Namespace) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	switch ns {
	case Network:
		a.Cloneflags = syscall.CLONE_NEWNET
	case Unshared:
		a.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a, nil
}
