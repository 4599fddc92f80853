package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// advise adds to an error of opening what to do about it. What is neither the
// disk's fault, nor the operator's, nor a newer version's is a damaged file: the
// way back is a backup.
func advise(dir string, err error) error {
	var what string
	_, newer := errors.AsType[*FormatError](err)
	switch {
	case newer, errors.Is(err, delivery.ErrClosed):
		return err
	case errors.Is(err, ErrLocked):
		what = "stop that process first, or name another directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		what = "free some space on its disk and start again: nothing that was acknowledged is lost"
	case errors.Is(err, syscall.EROFS):
		what = "its file system is mounted read-only: mount it so that it can be written"
	case errors.Is(err, fs.ErrPermission):
		what = "this process must own it and be allowed to read and write it and all that is in it"
	case errors.Is(err, syscall.ENOTDIR):
		what = "name a directory: a part of this path is a file"
	case errors.Is(err, ErrNoNodeKey), errors.Is(err, ErrNodeKeyFile), errors.Is(err, ErrWrongKey):
		what = "restore node.key from a backup: it is the only key to the secrets in here"
	case strings.Contains(err.Error(), "fixed when it is created"):
		return err
	default:
		what = "if a file is damaged, keep a copy of the directory and restore a backup"
	}
	return fmt.Errorf("%w; store %s: %s", err, dir, what)
}

// errNoManifest: the file that says which tables count is missing.
var errNoManifest = errors.New("the marker of the manifest is missing")

// checkFiles looks for tables or a log without the marker that says which manifest
// counts. Pebble would take such a directory for a new one, and remove what it does
// not know. A manifest alone is what a crash in the very first opening leaves.
func checkFiles(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	var left string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.manifest."), name == "CURRENT":
			return nil
		case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".log"):
			left = name
		}
	}
	if left != "" {
		return fmt.Errorf("%s is there, but %w", left, errNoManifest)
	}
	return nil
}
