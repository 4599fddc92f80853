package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// InMemory returns a file system that lives in memory, for tests of whoever
// builds on the store. What was not synced is lost by its CrashClone.
func InMemory() *vfs.MemFS { return vfs.NewCrashableMem() }

// pebbleFormat is pinned, so that a newer Pebble does not change the files of a
// store before this code says so. This one tells a torn log from a damaged one;
// what comes after it is value separation, which is not used.
const pebbleFormat = pebble.FormatTableFormatV6

// blockSize is that of tables. Whatever is read for the first time is read, checked
// and unpacked block by block: a dozen events at once cost a third of four times
// three.
const blockSize = 16 << 10

// What is written again after a flush; ADR 0014 has the arithmetic.
const (
	// l0Depth is how many flushes lie on top of each other before they are compacted,
	// all at once. Pebble counts each of them twice.
	l0Depth = 12
	// l0Stop is how many of them make writes wait.
	l0Stop = 4 * l0Depth
	// baseBytes is how much the level below L0 holds at most before another level is
	// begun: each compaction of L0 writes most of its dedupe rows and timelines again.
	baseBytes = 128 << 20
)

// options are Pebble's, for one opening of a database.
func (s *Store) options(fs vfs.FS, c *compactions) *pebble.Options {
	o := &pebble.Options{
		FS:                          fs,
		Lock:                        s.dirLock,
		Cache:                       s.cache,
		Merger:                      merger,
		Logger:                      pebbleLogger{s},
		EventListener:               s.listener(),
		FormatMajorVersion:          pebbleFormat,
		MemTableSize:                uint64(s.cfg.MemTable), //nolint:gosec // validated
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2 * l0Depth,
		L0StopWritesThreshold:       l0Stop,
		LBaseMaxBytes:               baseBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		// Expired ranges give their space back even if nothing is written.
		FlushDelayDeleteRange: 10 * time.Second,
		// The watermark is ours; what Pebble deletes is deleted at once.
		TargetByteDeletionRate: 0,
	}
	o.Experimental.CompactionScheduler = c
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // dedupe asks for what is not there
		o.Levels[i].BlockSize = blockSize
	}
	return o
}

// pebbleLogger passes on what Pebble wants to say. Its informational lines are
// about its own housekeeping: debug level.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.s.log.Debug("pebble", "message", lazy{format, args})
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.log.Warn("pebble reports an error", "message", lazy{format, args})
}

// Fatalf is called where Pebble would like the process to end. It does not: the
// store fails, nothing is acknowledged any more, and it can be opened again.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf("pebble: "+format, args...))
}

// lazy is formatted only if the level is enabled.
type lazy struct {
	format string
	args   []any
}

// LogValue implements slog.LogValuer.
func (l lazy) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf(l.format, l.args...)) }

// listener connects Pebble's events with the observer.
func (s *Store) listener() *pebble.EventListener {
	o := &s.cfg.Observer
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if errors.Is(err, errClosing) {
				return
			}
			o.Background(err)
			s.log.Warn("flush or compaction failed", "error", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			err := fmt.Errorf("%s: %w", info.Path, info.Details)
			o.Corruption(err)
			s.log.Error("file of the store is corrupt", "error", err)
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			o.SlowDisk(info.OpType.String(), info.Duration)
		},
		WriteStallBegin:   func(info pebble.WriteStallBeginInfo) { o.Stall(true, info.Reason) },
		WriteStallEnd:     func() { o.Stall(false, "") },
		PossibleAPIMisuse: func(info pebble.PossibleAPIMisuseInfo) { o.Misuse(info.String()) },
	}
}

// slowDisk is how long one operation on a file may take before it is reported.
const slowDisk = 2 * time.Second

// realFS is the operating system's file system, watched for operations that
// hang.
func (s *Store) realFS() vfs.FS {
	fs, stop := vfs.WithDiskHealthChecks(vfs.Default, slowDisk, nil, func(info vfs.DiskSlowInfo) {
		s.cfg.Observer.SlowDisk(info.OpType.String(), info.Duration)
	})
	s.stopFS = stop
	return fs
}

// makeDir creates a directory whose name survives a crash.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string // of what does not exist, innermost first
	for d := dir; ; {
		_, err := fs.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		parent := fs.PathDir(d)
		parents = append(parents, parent)
		if parent == d {
			break
		}
		d = parent
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range parents {
		if err := syncNamesIn(fs, p); err != nil {
			return err
		}
	}
	return nil
}

func syncNamesIn(fs vfs.FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lockDir takes the directory for this process.
func lockDir(fs vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fs)
	if err == nil {
		return lock, nil
	}
	// A lock that is taken is a bare errno or text; what is wrong with the file
	// itself comes with its path.
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return nil, fmt.Errorf("%s: %w (%w)", dir, ErrLocked, err)
}

// isNewerFormat recognises Pebble's refusal of a format that it does not know.
// It has no error value for that.
func isNewerFormat(err error) bool {
	return strings.Contains(err.Error(), "unknown format major version")
}
