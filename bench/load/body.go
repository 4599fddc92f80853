package load

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Bodies makes payloads of one size. They are JSON objects that begin with the
// time of their publish and differ in that and in their number.
type Bodies struct {
	tail []byte // behind the number
}

const (
	bodyHead   = `{"sent":"`
	sentDigits = 16
	bodyNumber = `","n":"`
	numDigits  = 9
	bodyPad    = `","pad":"`
	bodyEnd    = `"}`
	// MinBody is the smallest body that has room for what it must say.
	MinBody = len(bodyHead) + sentDigits + len(bodyNumber) + numDigits + len(bodyPad) + len(bodyEnd)
)

// NewBodies makes bodies of size bytes, padded with text drawn with the seed.
func NewBodies(size int, seed uint64) (*Bodies, error) {
	if size < MinBody {
		return nil, fmt.Errorf("body of %d bytes: at least %d are needed", size, MinBody)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	rng := rand.New(rand.NewPCG(seed, 0x626f6479))
	tail := make([]byte, 0, size)
	tail = append(tail, bodyPad...)
	for range size - MinBody {
		tail = append(tail, letters[rng.IntN(len(letters))])
	}
	return &Bodies{tail: append(tail, bodyEnd...)}, nil
}

// Append appends body n, published at the given time of the machine's clock.
func (b *Bodies) Append(dst []byte, n int, sent time.Duration) []byte {
	dst = append(dst, bodyHead...)
	dst = appendHex(dst, uint64(sent)) //nolint:gosec // a clock that began at zero
	dst = append(dst, bodyNumber...)
	dst = appendPadded(dst, n)
	return append(dst, b.tail...)
}

func appendHex(dst []byte, v uint64) []byte {
	var raw [8]byte
	for i := range raw {
		raw[i] = byte(v >> (56 - 8*i)) //nolint:gosec // one byte of it
	}
	return hex.AppendEncode(dst, raw[:])
}

func appendPadded(dst []byte, n int) []byte {
	text := strconv.Itoa(n)
	for range numDigits - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// Sent reads the time of the publish out of a body.
func Sent(body []byte) (time.Duration, bool) {
	if len(body) < len(bodyHead)+sentDigits || string(body[:len(bodyHead)]) != bodyHead {
		return 0, false
	}
	v, err := strconv.ParseUint(string(body[len(bodyHead):len(bodyHead)+sentDigits]), 16, 63)
	return time.Duration(v), err == nil //nolint:gosec // 63 bits
}

// EventID is the id of event n of a phase.
func EventID(tag string, n int) string { return tag + "-" + strconv.Itoa(n) }

// parseID splits an event's id.
func parseID(id string) (tag string, n int, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[at+1:])
	return id[:at], n, err == nil && n >= 0
}

// Path is a subscriber's path at the receiver.
func Path(subscriber int) string { return pathPrefix + strconv.Itoa(subscriber) }

const pathPrefix = "/s/"

func parsePath(path string) (subscriber int, ok bool) {
	rest, ok := strings.CutPrefix(path, pathPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil && n >= 0
}

// Topics of the benchmark: a subscriber listens to its own, to TopicAll and,
// if it is the one that hangs, to TopicHang.
const (
	TopicAll  = "bench.all"
	TopicHang = "bench.hang"
	TopicNone = "bench.nobody"
)

// TopicOf is a subscriber's own topic.
func TopicOf(subscriber int) string { return "bench.s" + strconv.Itoa(subscriber) }
