package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// RawCommits is the floor that a benchmark compares a store with: a bare
// database, and nothing on top of it but synced commits of one record each. It
// is here because no other package may know the database.
type RawCommits struct {
	// Dir is an empty directory on the disk to measure.
	Dir string
	// Writers commit side by side and share syncs where they meet.
	Writers int
	// Commits in all.
	Commits int
	// Bytes of one record's value.
	Bytes int
}

// Run commits everything. It returns how long each commit took, in any order,
// and how long all of them did, without opening and closing.
func (r RawCommits) Run(ctx context.Context) (took []time.Duration, all time.Duration, err error) {
	cfg := Config{}.withDefaults()
	db, err := pebble.Open(r.Dir, &pebble.Options{
		FS: vfs.Default, FormatMajorVersion: pebbleFormat, MemTableSize: uint64(cfg.MemTable), //nolint:gosec // our default
		MemTableStopWritesThreshold: 4, Logger: quietLogger{},
	})
	if err != nil {
		return nil, 0, fmt.Errorf("raw commits: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var next atomic.Int64
	each := make([][]time.Duration, r.Writers)
	errs := make([]error, r.Writers)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range r.Writers {
		wg.Go(func() {
			value, key := make([]byte, r.Bytes), make([]byte, 16)
			for ctx.Err() == nil {
				n := next.Add(1)
				if n > int64(r.Commits) {
					return
				}
				binary.BigEndian.PutUint64(key, uint64(n))   //nolint:gosec // positive
				binary.BigEndian.PutUint64(value, uint64(n)) //nolint:gosec // positive
				begin := time.Now()
				if errs[w] = db.Set(key, value, pebble.Sync); errs[w] != nil {
					return
				}
				each[w] = append(each[w], time.Since(begin))
			}
		})
	}
	wg.Wait()
	all = time.Since(start)
	for _, one := range each {
		took = append(took, one...)
	}
	return took, all, errors.Join(append(errs, ctx.Err())...)
}

// quietLogger drops what the bare database says; a fatal error of it fails the
// commit as well.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Errorf(string, ...any) {}
func (quietLogger) Fatalf(string, ...any) {}
