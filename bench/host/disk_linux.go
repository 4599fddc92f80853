package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// names of file systems by their magic number (statfs(2)).
var names = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.NFS_SUPER_MAGIC: "nfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", 0x2fc12fc1: "zfs",
}

// Disk returns the name of a directory's file system. One that lives in memory
// is an error: its fsync does nothing, and every figure would be about that.
func Disk(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	name := names[int64(st.Type)] //nolint:unconvert // int32 on some ports
	if name == "" {
		name = fmt.Sprintf("type %#x", st.Type)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return name, fmt.Errorf("%s is on %s, where a sync costs nothing and keeps nothing: choose a directory on a disk", dir, name)
	}
	return name, nil
}

const (
	probeFile  = 4 << 20
	probeBlock = 4 << 10
)

// Syncs overwrites blocks of 4 KiB in place, one fdatasync each, for a while,
// and describes how long each took. It is the cheapest durable write there is:
// the file's size and layout do not change.
//
// With every above zero a sync begins that often, and the disk and the processor
// rest between: then each takes several times as long as one after the other.
func Syncs(dir string, during, every time.Duration) (result stats.Latency, err error) {
	f, err := os.CreateTemp(dir, "sync-probe-")
	if err != nil {
		return stats.Latency{}, fmt.Errorf("probe syncs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(filepath.Clean(f.Name()))) }()
	if _, err := f.Write(make([]byte, probeFile)); err != nil {
		return stats.Latency{}, fmt.Errorf("probe syncs: %w", err)
	}
	if err := f.Sync(); err != nil {
		return stats.Latency{}, fmt.Errorf("probe syncs: %w", err)
	}
	block := make([]byte, probeBlock)
	var took []time.Duration
	next := time.Now()
	for at, end := int64(0), next.Add(during); len(took) == 0 || time.Now().Before(end); at = (at + probeBlock) % probeFile {
		block[0]++
		next = next.Add(every)
		if every > 0 {
			time.Sleep(time.Until(next))
		}
		start := time.Now()
		if _, err := f.WriteAt(block, at); err != nil {
			return stats.Latency{}, fmt.Errorf("probe syncs: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return stats.Latency{}, fmt.Errorf("probe syncs: %w", err)
		}
		took = append(took, time.Since(start))
	}
	return stats.LatencyOf(took), nil
}
