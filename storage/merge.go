package storage

import (
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// merger lets three kinds of row change without being read first. Its name is
// part of the store format: Pebble refuses to open a store with another one.
//
//	T  timelines     entries are appended
//	O  open counters differences are added
//	L  watermarks    a newer one replaces those of its epoch that it covers
//
// All three are associative. None returns an error for an operand that it cannot
// read: an error would stop every compaction of the file for good. A damaged
// timeline shows when it is read; a damaged counter or watermark counts as
// nothing, and the loss is a late retention or a missing "may have been sent".
var merger = &pebble.Merger{Name: "dispatcher.v1", Merge: newMerge}

func newMerge(key, value []byte) (pebble.ValueMerger, error) {
	if len(key) > 0 {
		switch key[0] {
		case prefixOpen:
			return &sumMerge{sum: counterOrZero(value)}, nil
		case prefixLease:
			m := &watermarkMerge{}
			return m, m.MergeNewer(value)
		}
	}
	return newAppendMerge(value), nil
}

// appendMerge concatenates, oldest first. Of a long timeline it keeps both ends;
// see shortenTimeline. Operands come from either side, mostly one or two, and from
// the newest on. Each timeline is merged once in every flush and compaction that it
// goes through, so what one has used serves the next: Pebble closes it when the
// value has been copied.
type appendMerge struct {
	buf  []byte
	from int // what is in use begins here; before it there is room for what is older
}

var appendMerges = sync.Pool{New: func() any { return new(appendMerge) }}

// maxKeptMerge is the size in bytes up to which a merge's buffer is used again.
const maxKeptMerge = 4 << 10

// appendRoom is room for the beginning of a usual timeline.
const appendRoom = 48

func newAppendMerge(value []byte) *appendMerge {
	m := appendMerges.Get().(*appendMerge) //nolint:errcheck // the pool's only type
	if room := appendRoom + len(value); cap(m.buf) < room {
		m.buf = make([]byte, room, 2*room)
	}
	m.buf, m.from = append(m.buf[:appendRoom], value...), appendRoom
	return m
}

func (m *appendMerge) MergeNewer(value []byte) error {
	m.buf = append(m.buf, value...)
	return nil
}

func (m *appendMerge) MergeOlder(value []byte) error {
	if len(value) > m.from {
		used := m.buf[m.from:]
		room := len(value) + len(used) // twice what there will be: few copies, however many operands
		buf := make([]byte, room+len(value)+len(used))
		copy(buf[room+len(value):], used)
		m.buf, m.from = buf, room+len(value)
	}
	m.from -= len(value)
	copy(m.buf[m.from:], value)
	return nil
}

func (m *appendMerge) Finish(includesBase bool) ([]byte, io.Closer, error) {
	v := m.buf[m.from:]
	if includesBase {
		v = shortenTimeline(v)
	}
	return v, m, nil
}

// Close implements io.Closer.
func (m *appendMerge) Close() error {
	if cap(m.buf) <= maxKeptMerge {
		appendMerges.Put(m)
	}
	return nil
}

// sumMerge adds.
type sumMerge struct{ sum int64 }

func counterOrZero(value []byte) int64 {
	n, err := decodeCounter(value)
	if err != nil {
		return 0
	}
	return n
}

func (m *sumMerge) MergeNewer(value []byte) error {
	m.sum += counterOrZero(value)
	return nil
}

func (m *sumMerge) MergeOlder(value []byte) error { return m.MergeNewer(value) }

func (m *sumMerge) Finish(bool) ([]byte, io.Closer, error) {
	return appendCounter(nil, m.sum), nil, nil
}

// watermarkMerge keeps, of each epoch, the watermarks that no later one of the
// same epoch covers. Those of older epochs stay: should the newer ones be taken
// back, what the older handed out may still have been sent.
type watermarkMerge struct{ marks []watermark }

func (m *watermarkMerge) MergeNewer(value []byte) error {
	newer, err := decodeWatermarks(nil, value)
	if err == nil {
		m.marks = joinWatermarks(m.marks, newer)
	}
	return nil
}

func (m *watermarkMerge) MergeOlder(value []byte) error {
	// A busy queue has one operand for each of its pages since the last flush, and
	// the newest covers all of them.
	var room [4]watermark
	older, err := decodeWatermarks(room[:0], value)
	if err != nil {
		return nil //nolint:nilerr // see merger
	}
	for _, w := range older {
		if !covered(w, m.marks) {
			m.marks = joinWatermarks(older, m.marks)
			break
		}
	}
	return nil
}

func covered(w watermark, newer []watermark) bool {
	for i := range newer {
		if newer[i].replaces(w) {
			return true
		}
	}
	return false
}

// Finish keeps a retraction only as long as there may be something before it.
func (m *watermarkMerge) Finish(includesBase bool) ([]byte, io.Closer, error) {
	b := []byte{codecVersion}
	for _, w := range m.marks {
		if !includesBase || !w.retracts() {
			b = appendWatermark(b, w)
		}
	}
	return b, nil, nil
}

// maxWatermarkEpochs bounds how many openings of the store one queue remembers
// leases of. What was handed out before that, and never since, counts as not sent.
const maxWatermarkEpochs = 16

func joinWatermarks(older, newer []watermark) []watermark {
	out := make([]watermark, 0, len(older)+len(newer))
	for _, w := range older {
		if !covered(w, newer) {
			out = append(out, w)
		}
	}
	out = append(out, newer...)
	// Epochs rise along the list: count them from its end.
	epochs := 0
	for i, w := range slices.Backward(out) {
		if i == len(out)-1 || w.epoch != out[i+1].epoch {
			if epochs++; epochs > maxWatermarkEpochs {
				return slices.Delete(out, 0, i+1)
			}
		}
	}
	return out
}
