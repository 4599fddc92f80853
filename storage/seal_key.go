package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// NodeKeyFile is the name of the node key inside the store's directory, unless
// the configuration says otherwise.
const NodeKeyFile = "node.key"

// NodeKeySize is the size of a node key, in bytes.
const NodeKeySize = 32

// NodeKey seals the secrets of one node's store. It lies beside the store, in a
// file of its own, so that it can be kept elsewhere: a copy of the store
// without it gives no secret away, and a store without it has lost them.
type NodeKey struct{ raw [NodeKeySize]byte }

// NewNodeKey returns a random key.
func NewNodeKey() NodeKey {
	var k NodeKey
	_, _ = rand.Read(k.raw[:]) // never fails: crypto/rand ends the process instead
	return k
}

// Format hides the key from every verb; a String method would not cover %d.
func (NodeKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// ErrNoNodeKey says that the store holds sealed secrets and that their key file
// is not there.
var ErrNoNodeKey = errors.New("node key is missing")

// ErrNodeKeyFile says that the key file cannot be used as it is: wrong size,
// readable by others, not a file.
var ErrNodeKeyFile = errors.New("node key file is unusable")

// loadNodeKey reads the key from path. It refuses a file that others can read:
// a secret that leaked is better found at the first start than at the first
// audit. A symbolic link is followed, the file it leads to is judged.
func loadNodeKey(path string) (NodeKey, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's own path
	if err != nil {
		return NodeKey{}, fmt.Errorf("open node key: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return NodeKey{}, fmt.Errorf("stat node key %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return NodeKey{}, fmt.Errorf("node key %s is not a regular file: %w", path, ErrNodeKeyFile)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return NodeKey{}, fmt.Errorf("node key %s has mode %04o, others can use it; run chmod 600 on it: %w",
			path, mode, ErrNodeKeyFile)
	}
	var k NodeKey
	n, err := io.ReadFull(f, k.raw[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return NodeKey{}, fmt.Errorf("read node key %s: %w", path, err)
	}
	if n != NodeKeySize || info.Size() != NodeKeySize {
		return NodeKey{}, fmt.Errorf("node key %s has %d bytes, want exactly %d; restore it from a backup: %w",
			path, info.Size(), NodeKeySize, ErrNodeKeyFile)
	}
	return k, nil
}

// openNodeKey loads the key from a file, or makes it. With needed it never makes
// one: the store has values that a new key cannot open. The caller holds the
// store's lock, so no second process does the same.
func openNodeKey(path string, needed bool) (NodeKey, error) {
	k, err := loadNodeKey(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return k, err
	case needed:
		return NodeKey{}, fmt.Errorf("%s: the store holds secrets that only this file opens; restore it from a backup: %w",
			path, ErrNoNodeKey)
	}
	k = NewNodeKey()
	if err := createNodeKey(path, k); err != nil {
		return NodeKey{}, fmt.Errorf("create node key %s: %w", path, err)
	}
	return k, nil
}

// createNodeKey makes the key durable before anything is sealed with it. The
// file appears under its name only when it is complete and synced, so a crash
// leaves either no key or a whole one.
func createNodeKey(path string, k NodeKey) error {
	name := filepath.Base(path)
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory handle
	partial := name + ".partial"
	// What a crash left behind may have any mode or content.
	if err := root.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(k.raw[:])
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := root.Rename(partial, name); err != nil {
		return err
	}
	return syncDir(root)
}

func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
