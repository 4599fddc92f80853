package storage

import (
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// merger lets three kinds of row change without being read first. Its name is
// part of the store format: Pebble refuses to open a store with another one.
//
//	T  timelines     entries are appended
//	O  open counters differences are added
//	L  watermarks    a newer one replaces those that it covers
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
	return &appendMerge{parts: [][]byte{slices.Clone(value)}}, nil
}

// appendMerge concatenates, oldest first.
type appendMerge struct {
	parts    [][]byte
	backward bool // parts are newest first
}

func (m *appendMerge) MergeNewer(value []byte) error {
	m.parts = append(m.parts, slices.Clone(value))
	return nil
}

func (m *appendMerge) MergeOlder(value []byte) error {
	m.backward = true
	m.parts = append(m.parts, slices.Clone(value))
	return nil
}

func (m *appendMerge) Finish(bool) ([]byte, io.Closer, error) {
	if m.backward {
		slices.Reverse(m.parts)
	}
	return slices.Concat(m.parts...), nil, nil
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

// watermarkMerge keeps the watermarks that no later one covers. An older epoch's
// stays as long as it reaches further: what stands between the two was handed
// out by the older one only.
type watermarkMerge struct{ marks []watermark }

func (m *watermarkMerge) MergeNewer(value []byte) error {
	newer, err := decodeWatermarks(value)
	if err == nil {
		m.marks = joinWatermarks(m.marks, newer)
	}
	return nil
}

func (m *watermarkMerge) MergeOlder(value []byte) error {
	older, err := decodeWatermarks(value)
	if err == nil {
		m.marks = joinWatermarks(older, m.marks)
	}
	return nil
}

func (m *watermarkMerge) Finish(bool) ([]byte, io.Closer, error) {
	b := []byte{codecVersion}
	for _, w := range m.marks {
		b = appendWatermark(b, w)
	}
	return b, nil, nil
}

func joinWatermarks(older, newer []watermark) []watermark {
	out := make([]watermark, 0, len(older)+len(newer))
	for _, w := range older {
		if !slices.ContainsFunc(newer, func(n watermark) bool { return n.covers(w.due, w.upTo) }) {
			out = append(out, w)
		}
	}
	return append(out, newer...)
}
