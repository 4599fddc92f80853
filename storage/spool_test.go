package storage

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// spooled makes an event whose payload was streamed into a file before.
func (b *bench) spooled(n uint64, id, payload string) *delivery.Published {
	b.tb.Helper()
	x := eventAt(time.Now(), n, id, 1)
	var err error
	x.Event.Payload = nil
	x.Event.Spool, x.Event.Size, err = b.SpoolPayload(b.tb.Context(), x.Event.Key, strings.NewReader(payload))
	noErr(b.tb, err)
	return x
}

func (b *bench) files() []string {
	b.tb.Helper()
	names, err := b.spool.dir.list()
	noErr(b.tb, err)
	return names
}

func TestAStreamedPayloadIsReadBackOnBothFileSystems(t *testing.T) {
	disk := func(c *Config) { c.FS, c.Dir = nil, t.TempDir() }
	for name, change := range map[string][]func(*Config){"memory": nil, "disk": {disk}} {
		t.Run(name, func(t *testing.T) {
			b := openBench(t, nil, change...)
			payload := strings.Repeat("0123456789", 30_000)
			x := b.spooled(1, "big", payload)
			if x.Event.Size != int64(len(payload)) {
				t.Errorf("size %d, want %d", x.Event.Size, len(payload))
			}
			b.publish(x)
			e, err := b.Event(t.Context(), x.Event.Key)
			noErr(t, err)
			r, err := b.OpenPayload(e.Spool)
			noErr(t, err)
			got, err := io.ReadAll(r)
			noErr(t, errors.Join(err, r.Close()))
			if string(got) != payload || e.Size != x.Event.Size {
				t.Errorf("%d bytes came back with size %d, want %d", len(got), e.Size, len(payload))
			}
		})
	}
}

func TestPublishRemovesTheStreamedFileOfAnEventThatItDoesNotStore(t *testing.T) {
	b := openBench(t, nil)
	first := b.spooled(1, "same", "payload")
	b.publish(first)
	if r := b.publish(b.spooled(2, "same", "payload")); !r.Deduplicated {
		t.Fatalf("%+v", r)
	}
	bad := b.spooled(3, "", "payload") // an event needs an id
	if r := b.Publish(t.Context(), []*delivery.Published{bad}); r[0].Err == nil {
		t.Fatal("an event without an id was stored")
	}
	ended, cancel := context.WithCancel(t.Context())
	late := b.spooled(4, "late", "payload")
	cancel()
	wantErr(t, b.Publish(ended, []*delivery.Published{late})[0].Err, context.Canceled)
	if files := b.files(); !slices.Equal(files, []string{first.Event.Spool}) {
		t.Errorf("files %v, want that of the stored event", files)
	}
}

func TestAPayloadThatBreaksOffLeavesNoFile(t *testing.T) {
	b := openBench(t, nil)
	broken := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(os.ErrDeadlineExceeded))
	_, _, err := b.SpoolPayload(t.Context(), eventKey(time.Now(), 1), broken)
	wantErr(t, err, os.ErrDeadlineExceeded)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = b.SpoolPayload(ended, eventKey(time.Now(), 2), strings.NewReader("x"))
	wantErr(t, err, context.Canceled)
	if files := b.files(); len(files) > 0 {
		t.Errorf("files %v", files)
	}
}

// endless is a payload that never was in memory.
type endless struct{ left int }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	e.left -= n
	return n, nil
}

func TestStreamingAPayloadNeedsNoMemoryForIt(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.FS, c.Dir = nil, t.TempDir() })
	n := uint64(0)
	perRun := testing.Benchmark(func(tb *testing.B) {
		tb.ReportAllocs()
		for range tb.N {
			n++
			if _, size, err := b.SpoolPayload(tb.Context(), eventKey(time.Now(), n), &endless{4 << 20}); err != nil || size != 4<<20 {
				tb.Fatal(size, err)
			}
			b.discard(b.files())
		}
	}).AllocedBytesPerOp()
	if perRun > 256<<10 {
		t.Errorf("4 MiB cost %d bytes of memory", perRun)
	}
}

func TestHeadersStayWithAnEventIntoItsDeadLetter(t *testing.T) {
	b := openBench(t, nil)
	x := b.event("e", 1)
	x.Event.Headers = []delivery.Header{{Name: "X-Github-Event", Value: "push"}, {Name: "X-Other", Value: "ü"}}
	b.publish(x)
	b.mustCommit(b.died(b.ready(1)[0]))
	_, dead, err := b.DeadLetter(t.Context(), x.Event.Key, 1)
	noErr(t, err)
	live, err := b.Event(t.Context(), x.Event.Key)
	noErr(t, err)
	for what, got := range map[string]*delivery.Event{"event": live, "dead letter": dead} {
		if !slices.Equal(got.Headers, x.Event.Headers) {
			t.Errorf("%s: %v", what, got.Headers)
		}
	}
	x = b.event("f", 1)
	x.Event.Headers = make([]delivery.Header, delivery.MaxEventHeaders+1)
	if r := b.Publish(t.Context(), []*delivery.Published{x}); !errors.Is(r[0].Err, errBadEvent) {
		t.Errorf("too many headers: %v", r[0].Err)
	}
	if _, _, err := decodeEvent(x.Event.Key, appendTargets(appendEventHead(nil, x.Event), nil), true); err == nil {
		t.Error("too many headers decode")
	}
}
