package delivery

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// TenantNum is a tenant's number inside this store. It comes from the tenant's
// configuration record, never from a node-local counter, so that a rebuilt
// partition names the same tenant. Zero means "no tenant".
type TenantNum uint32

// SubscriberNum is a subscriber's number inside this store; see [TenantNum].
// Zero means "no subscriber".
type SubscriberNum uint64

// Partition is the part of the key space a subscriber belongs to.
type Partition uint16

// PartitionShared names what belongs to no subscriber: events, dedupe rows and
// tenant indexes.
const PartitionShared Partition = 0xFFFF

// DefaultPartitions is the number of partitions of a new store. It is fixed
// when a store is created.
const DefaultPartitions = 256

// PartitionOf returns the partition of a subscriber in a store of count
// partitions. The mapping is part of the store format.
func PartitionOf(sub SubscriberNum, count int) Partition {
	x := uint64(sub)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return Partition(x % uint64(count)) //nolint:gosec // count is at most 65535
}

// Position is a fact's place in the log. On a single node it is the commit's
// position: strictly increasing, never reused, also after a crash. A queue
// row's sequence is the position of the fact that put it there.
type Position uint64

// Seq orders the rows of one subscriber's lane. It is the [Position] of the
// fact that created the row.
type Seq = Position

// Epoch is the fencing token: raised at each start of a node, carried by every
// fact and attempt.
type Epoch uint64

// NodeID names the node that wrote a fact.
type NodeID string

// Lease is the right to act for a partition. Every fact and attempt carries
// its node and epoch.
type Lease struct {
	Node  NodeID
	Epoch Epoch
}

// EventKey is an event's internal id: a UUIDv7 (RFC 9562 §5.7). Its first 48
// bits are milliseconds since the Unix epoch, so keys order events by time.
type EventKey [16]byte

// Time returns the millisecond timestamp inside the key, in UTC.
func (k EventKey) Time() time.Time {
	ms := int64(k[0])<<40 | int64(k[1])<<32 | int64(k[2])<<24 | int64(k[3])<<16 | int64(k[4])<<8 | int64(k[5])
	return time.UnixMilli(ms).UTC()
}

// IsZero reports whether the key is unset.
func (k EventKey) IsZero() bool { return k == EventKey{} }

// String returns the canonical UUID form, 36 characters.
func (k EventKey) String() string {
	var b [36]byte
	k.encode(b[:])
	return string(b[:])
}

func (k EventKey) encode(b []byte) {
	hex.Encode(b[0:8], k[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], k[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], k[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], k[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], k[10:16])
}

// MarshalText implements [encoding.TextMarshaler].
func (k EventKey) MarshalText() ([]byte, error) {
	b := make([]byte, 36)
	k.encode(b)
	return b, nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *EventKey) UnmarshalText(text []byte) error {
	parsed, err := ParseEventKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// ErrBadID is wrapped by every id parser's error.
var ErrBadID = errors.New("malformed id")

// ParseEventKey reads the canonical UUID form, lower or upper case.
func ParseEventKey(s string) (EventKey, error) {
	var k EventKey
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return k, fmt.Errorf("event key %q: not a UUID: %w", clip(s), ErrBadID)
	}
	compact := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(k[:], []byte(compact)); err != nil {
		return EventKey{}, fmt.Errorf("event key %q: not a UUID: %w", clip(s), ErrBadID)
	}
	return k, nil
}

// ID is a delivery's public id: "{internal event id}.{subscriber id}".
type ID struct {
	Event      EventKey
	Subscriber string
}

// String returns the public form.
func (id ID) String() string { return id.Event.String() + "." + id.Subscriber }

// ParseID reads the public form of a delivery's id.
func ParseID(s string) (ID, error) {
	event, sub, ok := strings.Cut(s, ".")
	if !ok {
		return ID{}, fmt.Errorf("delivery id %q: want {event}.{subscriber}: %w", clip(s), ErrBadID)
	}
	key, err := ParseEventKey(event)
	if err != nil {
		return ID{}, fmt.Errorf("delivery id: %w", err)
	}
	if err := CheckName(sub); err != nil {
		return ID{}, fmt.Errorf("delivery id: subscriber: %w", err)
	}
	return ID{Event: key, Subscriber: sub}, nil
}

// MaxEventIDLen is the longest public event id, in bytes.
const MaxEventIDLen = 256

// CheckEventID accepts [A-Za-z0-9_~:-]{1,256}. A dot is refused because it
// would make the signed content "{id}.{timestamp}.{body}" ambiguous.
func CheckEventID(s string) error {
	if s == "" || len(s) > MaxEventIDLen {
		return fmt.Errorf("event id has %d bytes, want 1 to %d: %w", len(s), MaxEventIDLen, ErrBadID)
	}
	for i := range len(s) {
		if c := s[i]; !isNameByte(c) && c != '~' && c != ':' {
			return fmt.Errorf("event id %q: byte %d is not one of A-Z a-z 0-9 _ ~ : -: %w", clip(s), i+1, ErrBadID)
		}
	}
	return nil
}

// MaxNameLen is the longest tenant, subscriber or source id, in bytes.
const MaxNameLen = 128

// CheckName accepts [A-Za-z0-9_-]{1,128}: ids of tenants, subscribers and
// sources, which appear in paths and inside delivery ids.
func CheckName(s string) error {
	if s == "" || len(s) > MaxNameLen {
		return fmt.Errorf("name has %d bytes, want 1 to %d: %w", len(s), MaxNameLen, ErrBadID)
	}
	for i := range len(s) {
		if !isNameByte(s[i]) {
			return fmt.Errorf("name %q: byte %d is not one of A-Z a-z 0-9 _ -: %w", clip(s), i+1, ErrBadID)
		}
	}
	return nil
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// clip keeps error messages bounded whatever a caller sent.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
