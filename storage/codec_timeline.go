package storage

import (
	"encoding/binary"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// A timeline is what the merge operator made of its entries, oldest first:
//
//	length, version, kind, …    length, version, kind, …
//
// One entry holds all that one fact says about the delivery; reading expands it
// into transitions. The state after the last entry is the delivery's state.
const (
	entryReceived byte = 1 // [leased], lease
	entryMoved    byte = 2
	entryReplayed byte = 3 // at, lease, attempts
	entryPurged   byte = 4 // at, lease
	entryDropped  byte = 5 // at, lease, reason
	entrySkipped  byte = 6 // number of entries that were left out here
	entryExpunged byte = 7 // at, lease, reason
)

// A delivery that is tried again and again without an end (a receiver that asks
// for a second's patience for days) must not grow its timeline without an end:
// the first and the last entries are kept.
const (
	timelineFirst = 16
	timelineLast  = 112
)

// shortenTimeline leaves out the middle of a timeline that is too long. It may be
// done at any time to any beginning of a timeline: what is seen in the end is the
// same. A timeline that cannot be read is left as it is.
func shortenTimeline(v []byte) []byte {
	var ends [timelineFirst + timelineLast + 2]int // of the first entries, then of the last, in a ring
	var skipped uint64
	n, skippedAt := 0, -1
	for d := (decoder{b: v}); len(d.b) > 0; n++ {
		b := d.bytes()
		if d.err != nil {
			return v
		}
		if n == timelineFirst && len(b) > 2 && b[1] == entrySkipped {
			in := decoder{b: b[2:]}
			skipped, skippedAt = in.uvarint(), n
		}
		if i := n; i < timelineFirst {
			ends[i] = len(v) - len(d.b)
		} else {
			ends[timelineFirst+(i-timelineFirst)%(timelineLast+2)] = len(v) - len(d.b)
		}
	}
	kept := timelineFirst + timelineLast
	if skippedAt >= 0 {
		kept++
	}
	if n <= kept {
		return v
	}
	skipped += uint64(n - kept) //nolint:gosec // positive
	// The last entries begin where the one before them ends.
	from := ends[timelineFirst+(n-timelineLast-1-timelineFirst)%(timelineLast+2)]
	out := append(make([]byte, 0, len(v)), v[:ends[timelineFirst-1]]...)
	start := len(out)
	out = closeEntry(binary.AppendUvarint(openEntry(out, entrySkipped), skipped), start)
	return append(out, v[from:]...)
}

// Bytes of a response's body that a timeline keeps: of a failure enough to see
// why, of a success a glimpse.
const (
	bodyKeptFailure = 2 << 10
	bodyKeptSuccess = 256
)

// Flags of a moved entry.
const (
	movedDue byte = 1 << iota
	movedNote
	movedSignature
	movedPrior
	movedAttempt
)

// openEntry and closeEntry put the length before what is appended between them.
func openEntry(b []byte, kind byte) []byte {
	return append(b, 0, 0, codecVersion, kind)
}

// closeEntry fills in the length as a padded two-byte number, or a longer one
// if that does not fit.
func closeEntry(b []byte, start int) []byte {
	n := len(b) - start - 2
	if n < 1<<14 {
		b[start] = byte(n) | 0x80
		b[start+1] = byte(n >> 7)
		return b
	}
	head := binary.AppendUvarint(nil, uint64(n))
	b = append(b, head[2:]...)
	copy(b[start+len(head):], b[start+2:start+2+n])
	copy(b[start:], head)
	return b
}

func appendReceived(b []byte, leased bool, lease delivery.Lease) []byte {
	start := len(b)
	b = appendBool(openEntry(b, entryReceived), leased)
	return closeEntry(appendLease(b, lease), start)
}

func appendReplayed(b []byte, f *delivery.Replayed) []byte {
	start := len(b)
	b = appendLease(appendNano(openEntry(b, entryReplayed), f.At), f.Lease)
	return closeEntry(appendInt(b, f.Attempts), start)
}

func appendPurged(b []byte, f *delivery.Purged) []byte {
	start := len(b)
	return closeEntry(appendLease(appendNano(openEntry(b, entryPurged), f.At), f.Lease), start)
}

func appendDropped(b []byte, f *delivery.Dropped) []byte {
	start := len(b)
	b = appendLease(appendNano(openEntry(b, entryDropped), f.At), f.Lease)
	return closeEntry(append(b, byte(f.Reason)), start)
}

func appendExpunged(b []byte, f *delivery.Expunged) []byte {
	start := len(b)
	b = appendLease(appendNano(openEntry(b, entryExpunged), f.At), f.Lease)
	return closeEntry(append(b, byte(f.Reason)), start)
}

// appendMoved encodes a move. What a listing needs comes first, the attempts
// last.
func appendMoved(b []byte, f *delivery.Moved) []byte {
	start := len(b)
	var flags byte
	for _, x := range [...]struct {
		set  bool
		flag byte
	}{
		{f.Next == delivery.NextRetry, movedDue},
		{f.Note != "", movedNote},
		{f.Signature != "", movedSignature},
		{f.Prior != nil, movedPrior},
		{f.Attempt != nil, movedAttempt},
	} {
		if x.set {
			flags |= x.flag
		}
	}
	b = openEntry(b, entryMoved)
	b = append(b, flags, byte(f.Next), byte(f.Reason))
	b = appendLease(appendNano(b, f.At), f.Lease)
	b = appendInt(b, attemptsAfter(f))
	if flags&movedDue != 0 {
		b = appendMilli(b, f.Due)
	}
	if flags&movedNote != 0 {
		b = appendString(b, f.Note)
	}
	if flags&movedSignature != 0 {
		b = appendString(b, f.Signature)
	}
	if f.Prior != nil {
		b = appendAttempt(b, f.Prior, f.Lease, bodyKeptFailure)
	}
	if f.Attempt != nil {
		kept := bodyKeptFailure
		if f.Next == delivery.NextDelivered {
			kept = bodyKeptSuccess
		}
		b = appendAttempt(b, f.Attempt, f.Lease, kept)
	}
	return closeEntry(b, start)
}

// attemptsAfter returns how many tries a delivery has had after a move. An
// interrupted attempt costs nothing; one that was lost with a dead node counts.
func attemptsAfter(f *delivery.Moved) int {
	n := f.Row.Attempts
	if f.Prior != nil {
		n = max(n, f.Prior.Number)
	}
	if f.Attempt != nil && f.Attempt.Outcome.Class != delivery.ClassInterrupted {
		n = max(n, f.Attempt.Number)
	}
	return n
}

// entry is one decoded timeline entry.
type entry struct {
	kind      byte
	at        time.Time
	lease     delivery.Lease
	leased    bool // received: handed out at once
	next      delivery.Next
	reason    delivery.Reason
	attempts  int
	due       time.Time
	note      string
	signature string
	prior     *delivery.Attempt
	attempt   *delivery.Attempt
	skipped   uint64
}

// entry reads the next entry of a timeline; the attempts only if asked.
func (d *decoder) entry(key delivery.EventKey, attempts bool) entry {
	in := decoder{b: d.bytes(), err: d.err}
	in.version("timeline entry")
	e := entry{kind: in.byte()}
	switch e.kind {
	case entryReceived:
		e.at, e.leased, e.lease = key.Time(), in.bool(), in.lease()
	case entryMoved:
		in.moved(&e, attempts)
	case entryReplayed:
		e.at, e.lease, e.attempts = in.nano(), in.lease(), in.int()
	case entryPurged:
		e.at, e.lease = in.nano(), in.lease()
	case entryDropped, entryExpunged:
		e.at, e.lease, e.reason = in.nano(), in.lease(), delivery.Reason(in.byte())
	case entrySkipped:
		e.skipped = in.uvarint()
	default:
		in.fail("kind of timeline entry")
	}
	if err := in.end("timeline entry"); err != nil && d.err == nil {
		d.err = err
		d.b = nil
	}
	return e
}

func (d *decoder) moved(e *entry, attempts bool) {
	flags := d.byte()
	e.next, e.reason = delivery.Next(d.byte()), delivery.Reason(d.byte())
	if d.err == nil && (e.next < delivery.NextDelivered || e.next > delivery.NextParked) {
		d.fail("next")
	}
	e.at, e.lease, e.attempts = d.nano(), d.lease(), d.int()
	if flags&movedDue != 0 {
		e.due = d.milli()
	}
	if flags&movedNote != 0 {
		e.note = d.string()
	}
	if flags&movedSignature != 0 {
		e.signature = d.string()
	}
	if !attempts && d.err == nil {
		d.b = nil
		return
	}
	if flags&movedPrior != 0 {
		e.prior = d.attempt(e.lease)
	}
	if flags&movedAttempt != 0 {
		e.attempt = d.attempt(e.lease)
	}
}
