package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// RunDir is a directory that lives as long as a run: data, logs, sockets. It is
// locked while the run goes on, so that the next run can tell what a killed one
// left behind.
type RunDir struct {
	// Path is the directory.
	Path string
	lock *os.File
}

const (
	runPrefix = "dispatcher-bench-"
	lockName  = "run.lock"
)

// NewRunDir makes a directory inside parent, which must be on a disk. With "",
// the first of the system's temporary directory and /var/tmp that is on one is
// taken. What killed runs left in parent is removed first; removed names it.
func NewRunDir(parent string) (run *RunDir, removed []string, err error) {
	if parent, err = onDisk(parent); err != nil {
		return nil, nil, err
	}
	if removed, err = removeStale(parent); err != nil {
		return nil, removed, err
	}
	path, err := os.MkdirTemp(parent, runPrefix)
	if err != nil {
		return nil, removed, fmt.Errorf("run directory: %w", err)
	}
	lock, err := lockFile(filepath.Join(path, lockName))
	if err != nil {
		return nil, removed, errors.Join(fmt.Errorf("run directory: %w", err), os.RemoveAll(path))
	}
	return &RunDir{Path: path, lock: lock}, removed, nil
}

func onDisk(parent string) (string, error) {
	candidates := []string{os.TempDir(), "/var/tmp"}
	if parent != "" {
		candidates = []string{parent}
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return "", fmt.Errorf("data directory: %w", err)
		}
	}
	var errs []error
	for _, dir := range candidates {
		_, err := Disk(dir)
		if err == nil {
			return dir, nil
		}
		if runtime.GOOS != "linux" && errors.Is(err, errors.ErrUnsupported) {
			return dir, nil // nobody knows; the report has no figures of the disk either
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// removeStale removes run directories whose lock nobody holds. A directory
// whose lock is missing may be one that is being made: it stays.
func removeStale(parent string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(parent, runPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for stale runs: %w", err)
	}
	var removed []string
	for _, dir := range dirs {
		name := filepath.Join(dir, lockName)
		if _, err := os.Lstat(name); err != nil {
			continue
		}
		lock, err := lockFile(name)
		if err != nil {
			continue // in use, or somebody else's
		}
		err = os.RemoveAll(dir)
		_ = lock.Close()
		if err != nil {
			return removed, fmt.Errorf("remove what a killed run left: %w", err)
		}
		removed = append(removed, dir)
	}
	return removed, nil
}

// Join returns a path inside the directory.
func (r *RunDir) Join(names ...string) string {
	return filepath.Join(append([]string{r.Path}, names...)...)
}

// Remove removes the directory with all that is in it.
func (r *RunDir) Remove() error {
	err := os.RemoveAll(r.Path)
	return errors.Join(err, r.lock.Close())
}
