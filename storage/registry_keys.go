package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// The second byte of the registry's records; the first is prefixConfig. Numbers
// are big endian, so that rows lie in their order.
const (
	regCounters    = '#' // → counters
	regSealCheck   = '!' // → a sealed constant: tells a wrong node key at once
	regTenant      = 't' // tenant → record
	regTenantID    = 'i' // tenant id → tenant
	regTenantSize  = 'z' // tenant → number of its subscribers
	regTenantGone  = 'x' // tenant → when it was deleted; its data is not yet removed
	regSubscriber  = 's' // subscriber → record
	regMember      = 'm' // tenant, subscriber id → subscriber
	regSubGone     = 'y' // subscriber → when it was deleted; its data is not yet removed
	regSubForget   = 'f' // when it was deleted, subscriber → its record may go at last
	regReserving   = 'r' // tenant, subscriber → nothing: its record reserves slots
	regDoc         = 'd' // tenant, length of kind, kind, id → document
	regPrefixBytes = 2
)

// regKey starts a key of the registry.
func regKey(space byte, extra int) []byte {
	return append(make([]byte, 0, regPrefixBytes+extra), prefixConfig, space)
}

func keyCounters() []byte  { return regKey(regCounters, 0) }
func keySealCheck() []byte { return regKey(regSealCheck, 0) }

func keyOfTenant(space byte, t delivery.TenantNum) []byte {
	return binary.BigEndian.AppendUint32(regKey(space, 4), uint32(t))
}

func keyTenantID(id string) []byte { return append(regKey(regTenantID, len(id)), id...) }

func keyOfSubscriber(space byte, s delivery.SubscriberNum) []byte {
	return binary.BigEndian.AppendUint64(regKey(space, 8), uint64(s))
}

func keyMember(t delivery.TenantNum, id string) []byte {
	return append(binary.BigEndian.AppendUint32(regKey(regMember, 4+len(id)), uint32(t)), id...)
}

func keyReservingOf(t delivery.TenantNum) []byte {
	return binary.BigEndian.AppendUint32(regKey(regReserving, 4+8), uint32(t))
}

func keyReserving(t delivery.TenantNum, s delivery.SubscriberNum) []byte {
	return binary.BigEndian.AppendUint64(keyReservingOf(t), uint64(s))
}

// keySubForget takes the time as encodeMilli writes it.
func keySubForget(deletedAt []byte, s delivery.SubscriberNum) []byte {
	return binary.BigEndian.AppendUint64(append(regKey(regSubForget, 16), deletedAt...), uint64(s))
}

// indexTopics is the kind of index that finds the subscribers of a topic:
// tenant, pattern, 0, subscriber.
const indexTopics = indexRegistry

func keyTopics(t delivery.TenantNum) []byte {
	return binary.BigEndian.AppendUint32([]byte{prefixIndex, indexTopics}, uint32(t))
}

// keyTopicPattern is what the index rows of one pattern start with. Patterns
// hold no zero byte, so no pattern's rows lie among another's.
func keyTopicPattern(dst []byte, t delivery.TenantNum, pattern string) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, prefixIndex, indexTopics), uint32(t))
	return append(append(dst, pattern...), 0)
}

func keyTopic(t delivery.TenantNum, pattern string, s delivery.SubscriberNum) []byte {
	k := keyTopicPattern(make([]byte, 0, regPrefixBytes+4+len(pattern)+1+8), t, pattern)
	return binary.BigEndian.AppendUint64(k, uint64(s))
}

// keyDocKind is what the documents of one kind and tenant start with; the
// length in front keeps kinds apart that begin alike.
func keyDocKind(t delivery.TenantNum, kind string) []byte {
	k := binary.BigEndian.AppendUint32(regKey(regDoc, 4+1+len(kind)), uint32(t))
	k = append(k, byte(len(kind))) //nolint:gosec // at most maxDocKind
	return append(k, kind...)
}

func keyDoc(k DocKey) []byte { return append(keyDocKind(k.Tenant, k.Kind), k.ID...) }

// lastTenant and lastSubscriber read the number a key ends with.
func lastTenant(b []byte) (delivery.TenantNum, error) {
	if len(b) < 4 {
		return 0, fmt.Errorf("tenant number of %d bytes: %w", len(b), ErrDamaged)
	}
	return delivery.TenantNum(binary.BigEndian.Uint32(b[len(b)-4:])), nil
}

func lastSubscriber(b []byte) (delivery.SubscriberNum, error) {
	if len(b) < 8 {
		return 0, fmt.Errorf("subscriber number of %d bytes: %w", len(b), ErrDamaged)
	}
	return delivery.SubscriberNum(binary.BigEndian.Uint64(b[len(b)-8:])), nil
}

// keyAfter returns the smallest key greater than every key that starts with
// prefix. Registry prefixes never end in 0xFF alone: the first byte is ASCII.
func keyAfter(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xFF {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
