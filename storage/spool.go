package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// spoolDir lies inside the store's directory and is part of every backup.
const spoolDir = "spool"

// spool keeps large payloads, one file each, named after their event:
//
//	0197f3….            the event's own, as long as its row exists
//	0197f3….-2a         a dead letter's, a link to the same bytes
//
// A file is complete and synced, and so is its name, before the batch that refers
// to it is applied. A crash in between leaves an orphan, which the retention task
// collects.
type spool struct{ dir spoolFiles }

// spoolFiles is the directory of the spool: an [os.Root], or a directory in a
// test's file system.
type spoolFiles interface {
	// create writes a file to the end of data and makes it durable.
	create(name string, data io.Reader) (int64, error)
	open(name string) (io.ReadCloser, error)
	// link gives a file a second, durable name. That it exists is no error.
	link(name, second string) error
	remove(name string) error
	list() ([]string, error)
	io.Closer
}

// openSpool opens the spool below a store's directory.
func openSpool(fs vfs.FS, dir string, real bool) (*spool, error) {
	path := fs.PathJoin(dir, spoolDir)
	if err := makeDir(fs, path); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if !real {
		return &spool{vfsFiles{fs, path}}, nil
	}
	root, err := os.OpenRoot(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return &spool{rootFiles{root}}, nil
}

func (s *spool) close() error { return s.dir.Close() }

// spoolName is the name of an event's file, and of a dead letter's if sub is
// given.
func spoolName(k delivery.EventKey, sub delivery.SubscriberNum) string {
	name := hex.EncodeToString(k[:])
	if sub != 0 {
		name += "-" + strconv.FormatUint(uint64(sub), 16)
	}
	return name
}

// parseSpoolName reads a name back; ok is false for a file that is not ours.
func parseSpoolName(name string) (ref DeliveryRef, ok bool) {
	event, sub, dead := strings.Cut(name, "-")
	raw, err := hex.DecodeString(event)
	if err != nil || len(raw) != len(ref.Event) {
		return DeliveryRef{}, false
	}
	copy(ref.Event[:], raw)
	if dead {
		n, err := strconv.ParseUint(sub, 16, 64)
		if err != nil {
			return DeliveryRef{}, false
		}
		ref.Subscriber = delivery.SubscriberNum(n)
	}
	return ref, spoolName(ref.Event, ref.Subscriber) == name
}

// write stores an event's payload durably and returns its name and length.
func (s *spool) write(k delivery.EventKey, payload io.Reader) (string, int64, error) {
	name := spoolName(k, 0)
	n, err := s.dir.create(name, payload)
	if err != nil {
		return "", 0, fmt.Errorf("spool payload: %w", errors.Join(err, s.remove(name)))
	}
	return name, n, nil
}

// keep gives a dead letter its own name for the bytes of a file.
func (s *spool) keep(name string, k delivery.EventKey, sub delivery.SubscriberNum) (string, error) {
	second := spoolName(k, sub)
	if second == name {
		return name, nil
	}
	if err := s.dir.link(name, second); err != nil {
		return "", fmt.Errorf("spool dead letter: %w", err)
	}
	return second, nil
}

// open streams a payload. A missing file is [delivery.ErrEventGone].
func (s *spool) open(name string) (io.ReadCloser, error) {
	if _, ok := parseSpoolName(name); !ok {
		return nil, fmt.Errorf("spool file %q: %w", name, errCorrupt)
	}
	f, err := s.dir.open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("spool file %s: %w", name, delivery.ErrEventGone)
	}
	return f, err
}

// remove deletes a file; that it is not there is no error.
func (s *spool) remove(name string) error {
	err := s.dir.remove(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// OpenPayload streams the payload of an event whose Spool is set.
func (s *Store) OpenPayload(name string) (io.ReadCloser, error) { return s.spool.open(name) }

// SpoolPayload streams the payload of the event that is going to be published
// under key into a durable file, and returns what its Spool and Size are then.
// [Store.Publish] takes the file over: it removes the file of an event that was
// not stored. One that is never published is collected.
func (s *Store) SpoolPayload(ctx context.Context, key delivery.EventKey, r io.Reader) (name string, size int64, err error) {
	if err := s.admissible(ctx, nil); err != nil {
		return "", 0, err
	}
	if _, err := s.committer(); err != nil {
		return "", 0, err
	}
	name, size, err = s.spool.write(key, contextReader{ctx, r})
	if err != nil {
		return "", 0, fmt.Errorf("publish %s: %w", key, err)
	}
	return name, size, nil
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // lives for one call
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// discard removes spool files that no batch refers to.
func (s *Store) discard(names []string) {
	for _, name := range names {
		if err := s.spool.remove(name); err != nil {
			s.log.Warn("spool file could not be removed; it will be collected", "error", err)
		}
	}
}

// discardUnused removes the spool files of events that were not stored. After a
// failed commit it is not known whether they were: those are left to the
// collector.
func (s *Store) discardUnused(p *publishing, spooled []string) {
	if len(spooled) == 0 {
		return
	}
	for i := range p.receipts {
		r := &p.receipts[i]
		if (r.Err == nil && !r.Deduplicated) || errors.Is(r.Err, delivery.ErrNotReady) || p.events[i] == nil {
			continue
		}
		if e := p.events[i].Event; e != nil && e.Spool == spoolName(e.Key, 0) {
			s.discard([]string{e.Spool})
		}
	}
}
