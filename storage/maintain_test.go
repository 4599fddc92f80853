package storage

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// openDisk opens a store on a real disk.
func openDisk(t *testing.T, dir string) *bench {
	t.Helper()
	return openBench(t, nil, func(c *Config) { c.Dir, c.FS = dir, nil; c.Watermark.Bytes = -1 })
}

func fill(b *bench) (small, large delivery.Receipt) {
	b.tb.Helper()
	small = b.publish(b.event("small", 1, 2))
	x := b.event("large", 3)
	x.Event.Payload = bytes.Repeat([]byte("x"), 2<<20)
	large = b.publish(x)
	b.publish(b.event("dead", 4))
	row := b.ready(4)[0]
	b.mustCommit(&delivery.Moved{Lease: b.Lease(), Row: row, At: time.Now(), Next: delivery.NextDead, Reason: delivery.ReasonExhausted})
	b.mustCommit(b.retried(b.ready(2)[0], time.Now().Add(time.Hour)))
	return small, large
}

func TestABackupOfARunningStoreIsAStore(t *testing.T) {
	b := openDisk(t, filepath.Join(t.TempDir(), "store"))
	small, large := fill(b)
	to := filepath.Join(t.TempDir(), "backup")
	noErr(t, b.Backup(t.Context(), to))
	b.publish(b.event("later", 1)) // the original goes on, and the copy does not see it

	c := openDisk(t, to)
	if rows := c.ready(1); len(rows) != 1 || rows[0].Event != small.Event {
		t.Errorf("rows of the copy: %+v", rows)
	}
	if c.Lease().Epoch <= b.Lease().Epoch {
		t.Errorf("the copy's epoch %d does not fence the original's %d", c.Lease().Epoch, b.Lease().Epoch)
	}
	e, err := c.Event(t.Context(), large.Event)
	noErr(t, err)
	body, err := c.OpenPayload(e.Spool)
	noErr(t, err)
	payload, err := io.ReadAll(body)
	noErr(t, errors.Join(err, body.Close()))
	if len(payload) != 2<<20 {
		t.Errorf("the large payload has %d bytes in the copy", len(payload))
	}
	report, err := c.Check(t.Context(), nil)
	noErr(t, err)
	if report.Bad != 0 {
		t.Errorf("%v", report.Faults)
	}
}

func TestABackupNeverOverwrites(t *testing.T) {
	b := openDisk(t, filepath.Join(t.TempDir(), "store"))
	to := t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(to, "precious"), []byte("x"), 0o600))
	if err := b.Backup(t.Context(), to); !errors.Is(err, ErrBackupTarget) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(to, "precious")); err != nil {
		t.Error(err)
	}
}

func TestCheckFindsWhatDoesNotFitTogether(t *testing.T) {
	damage := map[string]func(b *bench, small, large delivery.Receipt) []byte{
		"is missing": func(_ *bench, small, _ delivery.Receipt) []byte { return appendEventRow(nil, small.Event) },
		"nothing wakes it": func(b *bench, _, _ delivery.Receipt) []byte {
			row := b.retrying(2)[0]
			return appendWakeRow(nil, b.partition(2), row.Due, 2, row.Seq)
		},
		"are counted as open": func(b *bench, _, _ delivery.Receipt) []byte {
			row := b.ready(1)[0]
			return appendReadyRow(nil, b.partition(1), 1, row.Lane, row.Seq)
		},
		"spool file": nil,
	}
	for want, key := range damage {
		t.Run(want, func(t *testing.T) {
			b := openDisk(t, filepath.Join(t.TempDir(), "store"))
			small, large := fill(b)
			report, err := b.Check(t.Context(), nil)
			noErr(t, err)
			if report.Bad != 0 || report.Rows["event"] != 3 || report.Rows["dead_letter"] != 1 || report.Rows["retrying"] != 1 {
				t.Fatalf("before the damage: %+v", report)
			}
			if key != nil {
				noErr(t, b.view(func(db *pebble.DB) error { return db.Delete(key(b, small, large), pebble.Sync) }))
			} else {
				noErr(t, b.spool.remove(spoolName(large.Event, 0)))
			}
			report, err = b.Check(t.Context(), nil)
			noErr(t, err)
			if report.Bad == 0 || !strings.Contains(strings.Join(report.Faults, "\n"), want) {
				t.Errorf("%+v", report)
			}
		})
	}
}

func TestStatsCountWhatIsOpenAndCompactKeepsIt(t *testing.T) {
	b := openDisk(t, filepath.Join(t.TempDir(), "store"))
	fill(b)
	before, err := b.Stats()
	noErr(t, err)
	if before.Open != 3 || before.Spooled != 1 || before.DiskBytes == 0 || before.Epoch == 0 {
		t.Errorf("%+v", before)
	}
	noErr(t, b.Compact(t.Context()))
	after, err := b.Stats()
	noErr(t, err)
	if after.Open != before.Open {
		t.Errorf("open deliveries: %d, then %d", before.Open, after.Open)
	}
}
