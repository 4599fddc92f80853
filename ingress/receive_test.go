package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// newReceiver is a receiver with a limit of 1 MiB, 64 KiB of it in memory.
func newReceiver(t *testing.T) (*receiver, *countingSpool) {
	t.Helper()
	dir, err := OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	spool := &countingSpool{Spool: dir}
	b := &receiver{limit: 1 << 20, inRAM: 64 << 10, spool: spool, memory: &budget{max: 1 << 20}, disk: &budget{max: 1 << 20}}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
		if b.memory.used.Load() != 0 || b.disk.used.Load() != 0 || spool.open.Load() != 0 {
			t.Error("not everything was given back")
		}
	})
	return b, spool
}

func pattern(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i * 7 >> 3)
	}
	return out
}

func TestBodyIsTheSameInMemoryAndInAFile(t *testing.T) {
	for _, size := range []int{0, 1, 511, 4095, 4096, 4097, 65535, 65536, 65537, 66048, 66049, 200_000, 1 << 20} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader, "with EOF": iotest.DataErrReader,
		} {
			b, spool := newReceiver(t)
			want := pattern(size)
			var seen bytes.Buffer
			b.check = &seen
			if err := b.readAll(t.Context(), wrap(bytes.NewReader(want))); err != nil {
				t.Fatalf("%d bytes, %s: %v", size, name, err)
			}
			body := b.body()
			for range 2 { // it can be read more than once
				if got, err := io.ReadAll(body.Reader()); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %s: not the same, %v", size, name, err)
				}
			}
			data, inMemory := body.Bytes()
			if inMemory != (size <= 64<<10) || inMemory && !bytes.Equal(data, want) || inMemory != (body.File() == nil) || int(body.Size()) != size {
				t.Errorf("%d bytes, %s: in memory %v, size %d", size, name, inMemory, body.Size())
			}
			if b.sum() != sha256.Sum256(want) || !bytes.Equal(seen.Bytes(), want) {
				t.Errorf("%d bytes, %s: hashed or checked something else", size, name)
			}
			if made := spool.made.Load(); (made == 1) == inMemory {
				t.Errorf("%d bytes, %s: %d files", size, name, made)
			}
		}
	}
}

func TestBodyAboveTheLimitIsAnErrorAndNotCut(t *testing.T) {
	for _, limit := range []int64{1, 100, 4096, 64 << 10, 1 << 20} {
		b, _ := newReceiver(t)
		b.limit = limit
		if err := b.readAll(t.Context(), bytes.NewReader(pattern(int(limit)))); err != nil {
			t.Errorf("exactly %d bytes: %v", limit, err)
		}
		b, _ = newReceiver(t)
		b.limit = limit
		r := &countingBody{r: io.LimitReader(zeros{}, 1<<30)}
		if err := b.readAll(t.Context(), r); !errors.Is(err, errTooLarge) {
			t.Errorf("above %d bytes: %v", limit, err)
		}
		if over := r.read.Load() - limit; over > 64<<10 {
			t.Errorf("read %d bytes more than allowed", over)
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestSchemesThatNeedMemoryNeverUseAFile(t *testing.T) {
	b, spool := newReceiver(t)
	b.limit, b.inRAM = 1<<20, 1<<20
	want := pattern(1 << 20)
	if err := b.readAll(t.Context(), bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if data, ok := b.body().Bytes(); !ok || !bytes.Equal(data, want) || spool.made.Load() != 0 {
		t.Errorf("in memory %v, %d files", ok, spool.made.Load())
	}
	b, _ = newReceiver(t)
	b.limit, b.inRAM = 1<<20, 1<<20
	b.memory = &budget{max: 100 << 10}
	if err := b.readAll(t.Context(), bytes.NewReader(want)); !errors.Is(err, errBusy) {
		t.Errorf("without room in memory: %v", err)
	}
}

func TestWithoutRoomInMemoryBodiesGoToFilesEarly(t *testing.T) {
	b, spool := newReceiver(t)
	b.memory = &budget{max: 0}
	want := pattern(20_000)
	if err := b.readAll(t.Context(), bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b.body().Reader()); err != nil || !bytes.Equal(got, want) || spool.made.Load() != 1 {
		t.Errorf("%v, %d files", err, spool.made.Load())
	}
}

func TestSpoolHasABoundAndItsFaultsAreToldApart(t *testing.T) {
	b, _ := newReceiver(t)
	b.disk = &budget{max: 100 << 10}
	if err := b.readAll(t.Context(), bytes.NewReader(pattern(200<<10))); !errors.Is(err, errBusy) {
		t.Errorf("above the bound: %v", err)
	}
	b, spool := newReceiver(t)
	spool.err.Store(&errDown)
	if err := b.readAll(t.Context(), bytes.NewReader(pattern(200<<10))); !errors.Is(err, errSpool) || !errors.Is(err, errDown) {
		t.Errorf("no file: %v", err)
	}
	b, spool = newReceiver(t)
	spool.Spool = fullDisk{spool.Spool}
	if err := b.readAll(t.Context(), bytes.NewReader(pattern(200<<10))); !errors.Is(err, errSpool) || !errors.Is(err, errDown) {
		t.Errorf("a full disk: %v", err)
	}
	if b.spool == nil || bodyVerdict(errSpool, OutcomeBodyBroken).outcome != OutcomeStoreFailed {
		t.Error("a fault of the spool is the sender's")
	}
}

func TestBudgetIsExactUnderContention(t *testing.T) {
	b := budget{max: 10}
	if !b.take(10) || b.take(1) {
		t.Fatal("the bound is not 10")
	}
	b.give(3)
	if b.take(4) || !b.take(3) || b.used.Load() != 10 {
		t.Error("a request that was too large took something")
	}
}

func TestSpoolRemovesWhatACrashLeftAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{spoolPrefix + "left", "somebody-elses"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if names := dirNames(t, dir); len(names) != 1 || names[0] != "somebody-elses" {
		t.Errorf("left %v", names)
	}
	f, err := s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("secret")); err != nil {
		t.Fatal(err)
	}
	name := f.(interface{ Name() string }).Name()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(name, spoolPrefix) {
		t.Errorf("%v, %v", info, err)
	}
	for range 2 {
		if err := f.Discard(); err != nil {
			t.Errorf("discard: %v", err)
		}
	}
	if names := dirNames(t, dir); len(names) != 1 {
		t.Errorf("left %v", names)
	}
	// A file that was renamed belongs to somebody else, and its bytes stay.
	f, err = s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, f.(interface{ Name() string }).Name()), filepath.Join(dir, "taken")); err != nil {
		t.Fatal(err)
	}
	if err := f.Discard(); err != nil {
		t.Errorf("discard: %v", err)
	}
	if names := dirNames(t, dir); len(names) != 2 {
		t.Errorf("left %v", names)
	}
	if _, err := OpenSpool(filepath.Join(dir, "missing")); err == nil {
		t.Error("a directory that does not exist was opened")
	}
}

// fullDisk makes files that cannot be written.
type fullDisk struct{ Spool }

func (f fullDisk) Create(ctx context.Context) (SpoolFile, error) {
	file, err := f.Spool.Create(ctx)
	return fullFile{file}, err
}

type fullFile struct{ SpoolFile }

func (fullFile) Write([]byte) (int, error) { return 0, errDown }
