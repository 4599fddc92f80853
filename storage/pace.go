package storage

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What flushes and compactions write goes to the disk evenly. Pebble leaves a table
// to the page cache until it syncs it, as a whole: whatever waits for a sync of the
// log meanwhile waits for those megabytes, too. So every paceChunk is handed to the
// disk at once, and the next one waits for its time.
//
// Neither can fall behind. Besides its rate, a flush may write three times what the
// log gets: it is done before a tenth of the next memory table is full, since tables
// are packed. Compactions may write four times as much, several times what they need
// in the long run. Where many events come in, neither waits for anything.
const (
	paceChunk       = 32 << 10 // bytes
	paceRate        = 4 << 20  // bytes a second, each
	flushShare      = 3        // bytes for each byte that is logged
	compactionShare = 4
	paceBurst       = 512 << 10              // bytes: the log gets a batch at a time
	paceMemory      = 100 * time.Millisecond // what was logged before counts no more
	// What Pebble calls the writers.
	flushCategory      vfs.DiskWriteCategory = "pebble-memtable-flush"
	compactionCategory vfs.DiskWriteCategory = "pebble-compaction"
)

// paces are those of one opening of a database.
type paces struct {
	flush, compaction pace
	logged            atomic.Int64 // bytes written to the log
	hurry             atomic.Int32 // reasons not to wait: opening, closing, somebody waits
}

// wrap returns a new file as its writer is to use it.
func (p *paces) wrap(name string, category vfs.DiskWriteCategory, f vfs.File) vfs.File {
	switch {
	case strings.HasSuffix(name, ".log"):
		return &loggedFile{f, p}
	case category == flushCategory:
		return &pacedFile{File: f, pace: &p.flush}
	case category == compactionCategory:
		return &pacedFile{File: f, pace: &p.compaction}
	default:
		return f
	}
}

func newPaces() *paces {
	p := &paces{}
	p.flush, p.compaction = pace{all: p, share: flushShare}, pace{all: p, share: compactionShare}
	p.hurry.Store(1) // it is being opened
	return p
}

// pace is that of one kind of writer.
type pace struct {
	all   *paces
	share int64

	mu     sync.Mutex
	at     time.Time // when credit was counted
	logged int64     // bytes that it was counted with
	credit float64   // bytes: a chunk at most for time, paceBurst for what was logged
}

// take counts n bytes, and tells how long the next ones have to wait.
func (p *pace) take(n int, now time.Time) time.Duration {
	logged := p.all.logged.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	passed := now.Sub(p.at)
	p.credit = min(p.credit+passed.Seconds()*paceRate, max(p.credit, paceChunk))
	if passed < paceMemory {
		p.credit = min(p.credit+float64((logged-p.logged)*p.share), paceBurst)
	}
	p.credit -= float64(n)
	p.at, p.logged = now, logged
	return time.Duration(max(0, -p.credit) / paceRate * float64(time.Second))
}

// pacedFile is a table that a flush or a compaction writes.
type pacedFile struct {
	vfs.File
	pace    *pace
	written int64
	waiting int  // bytes that were not counted yet
	whole   bool // it can only be synced as a whole, which is for its end
}

// Write implements vfs.File.
func (f *pacedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.written += int64(n)
	f.waiting += n
	if err != nil || f.waiting < paceChunk {
		return n, err
	}
	wait := f.pace.take(f.waiting, time.Now())
	f.waiting = 0
	if wait <= 0 || f.pace.all.hurry.Load() > 0 {
		return n, nil
	}
	if !f.whole {
		if f.whole, err = f.File.SyncTo(f.written); err != nil {
			return n, err
		}
	}
	time.Sleep(wait)
	return n, nil
}

// loggedFile is a log, whose bytes are counted.
type loggedFile struct {
	vfs.File
	paces *paces
}

// Write implements vfs.File.
func (f *loggedFile) Write(p []byte) (int, error) {
	f.paces.logged.Add(int64(len(p)))
	return f.File.Write(p)
}
