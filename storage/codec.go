package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Every stored value begins with the version of its layout. A reader knows all
// versions up to its own; the number is raised when a layout changes, and the
// old reader stays.
const codecVersion byte = 1

// errCorrupt is wrapped by the error of every decoder.
var errCorrupt = errors.New("stored value is malformed")

// decoder reads a value field by field. The first error sticks and later reads
// give zero values, so that a layout reads as a list of its fields and one check
// at its end.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %w", what, errCorrupt)
	}
	d.b = nil
}

// version reads the version byte.
func (d *decoder) version(what string) {
	if v := d.byte(); d.err == nil && v != codecVersion {
		d.fail(fmt.Sprintf("%s of version %d", what, v))
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("value ends early")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads a number of elements of at least size bytes each, so that a
// malformed value cannot ask for more memory than it has bytes.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail("count")
		return 0
	}
	return int(n) //nolint:gosec // at most len(d.b)
}

// int reads a number that fits 32 bits: attempts, status codes, lengths.
func (d *decoder) int() int {
	v := d.varint()
	if v != int64(int32(v)) { //nolint:gosec // the check itself
		d.fail("number out of range")
		return 0
	}
	return int(v)
}

func (d *decoder) uint64() uint64 {
	b := d.fixed(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (d *decoder) uint32() uint32 {
	b := d.fixed(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// fixed returns n bytes of the value itself, nil on error.
func (d *decoder) fixed(n int) []byte {
	if n < 0 || len(d.b) < n {
		d.fail("value ends early")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) eventKey() (k delivery.EventKey) {
	copy(k[:], d.fixed(len(k)))
	return k
}

// bytes returns a length-prefixed part of the value itself.
func (d *decoder) bytes() []byte {
	return d.fixed(d.count(1))
}

func (d *decoder) string() string { return string(d.bytes()) }

// stringLike is string, and the same memory as known where that is equal.
func (d *decoder) stringLike(known string) string {
	b := d.bytes()
	if string(b) == known {
		return known
	}
	return string(b)
}

func (d *decoder) bool() bool {
	switch d.byte() {
	case 0:
		return false
	case 1:
		return true
	default:
		d.fail("boolean")
		return false
	}
}

// milli reads a time of millisecond precision; see appendMilli.
func (d *decoder) milli() time.Time {
	ms := d.uvarint()
	if ms > maxMilli {
		d.fail("time")
		return time.Time{}
	}
	return milliTime(ms)
}

// nano reads a time of full precision; see appendNano.
func (d *decoder) nano() time.Time {
	switch d.byte() {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(0, d.varint()).UTC()
	default:
		d.fail("time")
		return time.Time{}
	}
}

// end reports the first error, or that something is left over.
func (d *decoder) end(what string) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("trailing bytes")
	}
	if d.err != nil {
		return fmt.Errorf("%s: %w", what, d.err)
	}
	return nil
}

// maxMilli is the last instant that a 48-bit key part can hold, some thousands
// of years ahead.
const maxMilli = 1<<48 - 1

// milliOf returns a time as milliseconds since the epoch, as keys and rows hold
// it. The zero time and everything before 1970 is 0.
func milliOf(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	ms := t.UnixMilli()
	switch {
	case ms < 0:
		return 0
	case ms > maxMilli:
		return maxMilli
	}
	return uint64(ms)
}

func milliTime(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC() //nolint:gosec // at most maxMilli
}

func appendMilli(b []byte, t time.Time) []byte { return binary.AppendUvarint(b, milliOf(t)) }

func appendNano(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), t.UnixNano())
}

func appendString[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt(b []byte, v int) []byte { return binary.AppendVarint(b, int64(v)) }
