package storage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// One byte opens every key and says what the row is. Numbers are big endian, so
// that rows lie in their order. Letters and layouts are part of the store
// format; testdata/keys holds an example of each.
const (
	prefixConfig  byte = 'C' // configuration records; layout in registry_keys.go
	prefixIndex   byte = 'I' // indexes; the second byte is an index kind
	prefixMeta    byte = 'M' // format, epoch, reserved positions, replay jobs
	prefixEvent   byte = 'E' // event
	prefixDedupe  byte = 'D' // bucket, tenant, hash
	prefixOpen    byte = 'O' // hour → number of open deliveries
	prefixReady   byte = 'Q' // partition, subscriber, lane, seq
	prefixRetry   byte = 'R' // partition, subscriber, due, seq
	prefixParked  byte = 'K' // partition, subscriber, key, seq
	prefixBlocked byte = 'B' // partition, subscriber, key
	prefixWake    byte = 'W' // partition, due, subscriber, seq
	prefixLease   byte = 'L' // partition, subscriber, place, lane or key
	prefixHealth  byte = 'H' // partition, subscriber
	prefixTime    byte = 'T' // partition, hour, subscriber, event
	prefixDead    byte = 'X' // partition, subscriber, event
	prefixDied    byte = 'Y' // partition, subscriber, died, event
)

// Kinds of index, the byte after [prefixIndex]. Those from indexRegistry up
// belong to the configuration registry.
const (
	indexTenantEvents byte = 0x01 // tenant, event: what a tenant published, by time
	indexTenantDead   byte = 0x02 // tenant, died, subscriber, event
	indexRegistry     byte = 0x10
)

// hour is the number of hours since the epoch: the bucket of timelines and open
// counters.
type hour uint32

func hourOf(t time.Time) hour { return hour(milliOf(t) / uint64(time.Hour/time.Millisecond)) }

func hourOfEvent(k delivery.EventKey) hour { return hourOf(k.Time()) }

func (h hour) start() time.Time { return time.Unix(int64(h)*3600, 0).UTC() }

// firstEventKey is the smallest event key of a time.
func firstEventKey(t time.Time) (k delivery.EventKey) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], milliOf(t))
	copy(k[:6], b[2:])
	return k
}

// appendMilli48 appends a time as a key part of 48 bits.
func appendMilli48(b []byte, t time.Time) []byte {
	ms := milliOf(t)
	return append(b, byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
}

func milli48(b []byte) time.Time {
	_ = b[5]
	return milliTime(uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5]))
}

func appendPart(b []byte, prefix byte, p delivery.Partition) []byte {
	return binary.BigEndian.AppendUint16(append(b, prefix), uint16(p))
}

func appendPartSub(b []byte, prefix byte, p delivery.Partition, sub delivery.SubscriberNum) []byte {
	return binary.BigEndian.AppendUint64(appendPart(b, prefix, p), uint64(sub))
}

func appendEventRow(b []byte, k delivery.EventKey) []byte {
	return append(append(b, prefixEvent), k[:]...)
}

func appendOpenRow(b []byte, h hour) []byte {
	return binary.BigEndian.AppendUint32(append(b, prefixOpen), uint32(h))
}

func appendReadyRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, lane delivery.Priority, seq delivery.Seq) []byte {
	b = append(appendPartSub(b, prefixReady, p, sub), byte(lane))
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

func appendRetryRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, due time.Time, seq delivery.Seq) []byte {
	b = appendMilli48(appendPartSub(b, prefixRetry, p, sub), due)
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

func appendParkedRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, key delivery.KeyHash, seq delivery.Seq) []byte {
	b = binary.BigEndian.AppendUint64(appendPartSub(b, prefixParked, p, sub), uint64(key))
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

func appendBlockedRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, key delivery.KeyHash) []byte {
	return binary.BigEndian.AppendUint64(appendPartSub(b, prefixBlocked, p, sub), uint64(key))
}

func appendWakeRow(b []byte, p delivery.Partition, due time.Time, sub delivery.SubscriberNum, seq delivery.Seq) []byte {
	b = binary.BigEndian.AppendUint64(appendMilli48(appendPart(b, prefixWake, p), due), uint64(sub))
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

// appendLeaseRow names a watermark: which is a lane of Q, a key of K, and 0 for R.
func appendLeaseRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, place delivery.Place, which uint64) []byte {
	b = append(appendPartSub(b, prefixLease, p, sub), byte(place))
	return binary.BigEndian.AppendUint64(b, which)
}

func appendTimeRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, k delivery.EventKey) []byte {
	return append(appendTimeSub(b, p, hourOfEvent(k), sub), k[:]...)
}

func appendTimeSub(b []byte, p delivery.Partition, h hour, sub delivery.SubscriberNum) []byte {
	b = binary.BigEndian.AppendUint32(appendPart(b, prefixTime, p), uint32(h))
	return binary.BigEndian.AppendUint64(b, uint64(sub))
}

func appendDeadRow(b []byte, p delivery.Partition, sub delivery.SubscriberNum, k delivery.EventKey) []byte {
	return append(appendPartSub(b, prefixDead, p, sub), k[:]...)
}

func appendTenantEventRow(b []byte, t delivery.TenantNum, k delivery.EventKey) []byte {
	return append(appendTenantEvents(b, t), k[:]...)
}

func appendTenantEvents(b []byte, t delivery.TenantNum) []byte {
	return binary.BigEndian.AppendUint32(append(b, prefixIndex, indexTenantEvents), uint32(t))
}

// keyTail checks that a key has the length of its kind and returns what follows
// its first skip bytes.
func keyTail(key []byte, what string, length, skip int) ([]byte, error) {
	if len(key) != length {
		return nil, fmt.Errorf("%s key of %d bytes, want %d: %w", what, len(key), length, errCorrupt)
	}
	return key[skip:], nil
}

// Lengths of keys.
const (
	partSubLen   = 1 + 2 + 8
	readyRowLen  = partSubLen + 1 + 8
	retryRowLen  = partSubLen + 6 + 8
	parkedRowLen = partSubLen + 8 + 8
	wakeRowLen   = 1 + 2 + 6 + 8 + 8
	timeRowLen   = 1 + 2 + 4 + 8 + 16
	deadRowLen   = partSubLen + 16
	diedRowLen   = partSubLen + 6 + 16
	tenantRowLen = 2 + 4 + 16
	tenantDead   = 2 + 4 + 6 + 8 + 16
	openRowLen   = 1 + 4
)

// parsePlace reads the location of a row out of its key: subscriber, place,
// lane, due, sequence and, for a parked row, the ordering key.
func parsePlace(key []byte, row *delivery.Row) error {
	if len(key) < partSubLen {
		return fmt.Errorf("queue key of %d bytes: %w", len(key), errCorrupt)
	}
	row.Subscriber = delivery.SubscriberNum(binary.BigEndian.Uint64(key[3:]))
	switch key[0] {
	case prefixReady:
		tail, err := keyTail(key, "ready row", readyRowLen, partSubLen)
		if err != nil {
			return err
		}
		row.Place, row.Lane, row.Seq = delivery.PlaceReady, delivery.Priority(tail[0]), seqAt(tail[1:])
	case prefixRetry:
		tail, err := keyTail(key, "retry row", retryRowLen, partSubLen)
		if err != nil {
			return err
		}
		row.Place, row.Due, row.Seq = delivery.PlaceRetry, milli48(tail), seqAt(tail[6:])
		row.Lane = delivery.PriorityNormal
	case prefixParked:
		tail, err := keyTail(key, "parked row", parkedRowLen, partSubLen)
		if err != nil {
			return err
		}
		row.Place, row.Seq = delivery.PlaceParked, seqAt(tail[8:])
		row.Key, row.Lane = delivery.KeyHash(binary.BigEndian.Uint64(tail)), delivery.PriorityNormal
	default:
		return fmt.Errorf("key of kind %q is no queue row: %w", key[0], errCorrupt)
	}
	return nil
}

func seqAt(b []byte) delivery.Seq { return delivery.Seq(binary.BigEndian.Uint64(b)) }
