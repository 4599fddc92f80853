package storage

import (
	"encoding/binary"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Flags of an attempt.
const (
	attemptLeasedAt uint64 = 1 << iota
	attemptStartedAt
	attemptEndedAt
	attemptReused
	attemptFallback
	attemptTruncated
	attemptFailure
	attemptDetail
	attemptRetryAfter
	attemptDate
	attemptLocation
	attemptRaceLoser
	attemptRemote
	attemptBody
	attemptWait
	attemptLease
	attemptSentCause
)

func attemptFlags(a *delivery.Attempt, lease delivery.Lease) uint64 {
	var flags uint64
	r := &a.Result
	for _, f := range [...]struct {
		set  bool
		flag uint64
	}{
		{!a.LeasedAt.IsZero(), attemptLeasedAt},
		{!a.StartedAt.IsZero(), attemptStartedAt},
		{!a.EndedAt.IsZero(), attemptEndedAt},
		{r.Reused, attemptReused},
		{r.Fallback, attemptFallback},
		{r.Truncated, attemptTruncated},
		{a.Outcome.Failure, attemptFailure},
		{r.Detail != "", attemptDetail},
		{r.RetryAfter != "", attemptRetryAfter},
		{r.Date != "", attemptDate},
		{r.Location != "", attemptLocation},
		{r.RaceLoser != "", attemptRaceLoser},
		{r.Remote != "", attemptRemote},
		{len(r.Body) > 0, attemptBody},
		{a.Outcome.RetryAfter != 0, attemptWait},
		{a.Lease != lease, attemptLease},
		{r.Sent != 0 || r.Cause != 0, attemptSentCause},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	return flags
}

// appendAttempt encodes an attempt that was made under lease (its own is written
// only if it differs). At most body bytes of the excerpt are kept.
func appendAttempt(b []byte, a *delivery.Attempt, lease delivery.Lease, body int) []byte {
	flags := attemptFlags(a, lease)
	excerpt := a.Result.Body
	if len(excerpt) > body {
		excerpt = excerpt[:body]
		flags |= attemptTruncated
	}
	b = binary.AppendUvarint(b, flags)
	b = appendInt(b, a.Number)
	var last int64 // times are written as differences
	for _, t := range [...]time.Time{a.LeasedAt, a.StartedAt, a.EndedAt} {
		if !t.IsZero() {
			b = binary.AppendVarint(b, t.UnixNano()-last)
			last = t.UnixNano()
		}
	}
	if flags&attemptLease != 0 {
		b = appendLease(b, a.Lease)
	}
	b = appendInt(b, a.Result.Status)
	if flags&attemptSentCause != 0 {
		b = append(b, byte(a.Result.Sent), byte(a.Result.Cause))
	}
	b = append(b, byte(a.Result.Protocol), byte(a.Outcome.Class), byte(a.Outcome.Reason))
	if flags&attemptWait != 0 {
		b = binary.AppendVarint(b, int64(a.Outcome.RetryAfter))
	}
	for _, s := range [...]string{
		a.Result.Detail, a.Result.RetryAfter, a.Result.Date, a.Result.Location, a.Result.RaceLoser, a.Result.Remote,
	} {
		if s != "" {
			b = appendString(b, s)
		}
	}
	if flags&attemptBody != 0 {
		b = appendString(b, excerpt)
	}
	b = appendPhases(b, &a.Result.Phases)
	return binary.AppendVarint(b, a.Result.BytesSent)
}

// attempt reads what appendAttempt wrote.
func (d *decoder) attempt(lease delivery.Lease) *delivery.Attempt {
	flags := d.uvarint()
	a := &delivery.Attempt{Number: d.int(), Lease: lease}
	var last int64
	for _, t := range [...]struct {
		flag uint64
		at   *time.Time
	}{{attemptLeasedAt, &a.LeasedAt}, {attemptStartedAt, &a.StartedAt}, {attemptEndedAt, &a.EndedAt}} {
		if flags&t.flag != 0 {
			last += d.varint()
			*t.at = time.Unix(0, last).UTC()
		}
	}
	if flags&attemptLease != 0 {
		a.Lease = d.lease()
	}
	r := &a.Result
	r.Status = d.int()
	if flags&attemptSentCause != 0 {
		r.Sent, r.Cause = delivery.Sent(d.byte()), delivery.Cause(d.byte())
	}
	r.Protocol = delivery.Protocol(d.byte())
	a.Outcome.Class, a.Outcome.Reason = delivery.Class(d.byte()), delivery.Reason(d.byte())
	if flags&attemptWait != 0 {
		a.Outcome.RetryAfter = time.Duration(d.varint())
	}
	for _, s := range [...]struct {
		flag uint64
		to   *string
	}{
		{attemptDetail, &r.Detail}, {attemptRetryAfter, &r.RetryAfter}, {attemptDate, &r.Date},
		{attemptLocation, &r.Location}, {attemptRaceLoser, &r.RaceLoser}, {attemptRemote, &r.Remote},
	} {
		if flags&s.flag != 0 {
			*s.to = d.string()
		}
	}
	if flags&attemptBody != 0 {
		r.Body = append([]byte(nil), d.bytes()...)
	}
	d.phases(&r.Phases)
	r.BytesSent = d.varint()
	r.Reused = flags&attemptReused != 0
	r.Fallback = flags&attemptFallback != 0
	r.Truncated = flags&attemptTruncated != 0
	a.Outcome.Failure = flags&attemptFailure != 0
	return a
}

// appendPhases writes a bitmap of the phases that happened, then those.
func appendPhases(b []byte, p *delivery.Phases) []byte {
	list := [...]time.Duration{p.DNS, p.Connect, p.TLS, p.QUIC, p.FirstByte, p.Total}
	var present byte
	for i, v := range list {
		if v != 0 {
			present |= 1 << i
		}
	}
	b = append(b, present)
	for _, v := range list {
		if v != 0 {
			b = binary.AppendVarint(b, int64(v))
		}
	}
	return b
}

func (d *decoder) phases(p *delivery.Phases) {
	present := d.byte()
	for i, to := range [...]*time.Duration{&p.DNS, &p.Connect, &p.TLS, &p.QUIC, &p.FirstByte, &p.Total} {
		if present&(1<<i) != 0 {
			*to = time.Duration(d.varint())
		}
	}
}

func appendLease(b []byte, l delivery.Lease) []byte {
	return appendString(binary.AppendUvarint(b, uint64(l.Epoch)), l.Node)
}

func (d *decoder) lease() delivery.Lease {
	epoch := delivery.Epoch(d.uvarint())
	return delivery.Lease{Epoch: epoch, Node: delivery.NodeID(d.string())}
}
