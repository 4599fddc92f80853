package ingress

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Message is a verified request on its way into the store.
type Message struct {
	Tenant string
	Source string
	// Destination is where it goes on to.
	Destination Destination
	// ID is the public event id, made from the provider's id so that every copy
	// of one delivery has the same; "" = the provider has none, make one.
	ID string
	// Topic is "{source}.{type}", or "{source}.unknown".
	Topic string
	// ContentType as received; "application/octet-stream" if there was none.
	ContentType string
	// Headers are those the source forwards, canonical names in sorted order.
	Headers []Header
	// TraceParent is the request's W3C trace context as it came, "" = none. It is
	// not checked here.
	TraceParent string
	// Body is what was received and verified, byte for byte; expanded if it came
	// compressed and the source allows that.
	Body *Body
	// Digest is the SHA-256 of Body.
	Digest [sha256.Size]byte
	// DedupeBody asks to recognise the same body under another ID, too.
	DedupeBody bool
	// ReceivedAt is when the request's headers had arrived.
	ReceivedAt time.Time
	// NotBefore is when it may be processed, for a tenant over quota; zero = now.
	NotBefore time.Time
}

// Header is one header that goes on with the event.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Dedupe returns the row under which the store recognises m.
func (m *Message) Dedupe() *delivery.Dedupe {
	d := &delivery.Dedupe{Source: m.Source, ID: m.ID, Body: m.DedupeBody}
	copy(d.Content[:], m.Digest[:])
	return d
}

// eventID makes a provider's id the public id of an event: "{source}:{id}". The
// source keeps two providers' ids apart, which number their events alike. What
// cannot stand in an event id is replaced by its hash, the same every time.
func eventID(source, id string) string {
	if id == "" {
		return ""
	}
	full := source + ":" + id
	if delivery.CheckEventID(full) == nil {
		return full
	}
	sum := sha256.Sum256([]byte(id))
	return source + ":" + hex.EncodeToString(sum[:16])
}

// Body is a received body, in memory or in a spool file.
type Body struct {
	data []byte
	file SpoolFile
	size int64
}

// NewBody returns a body in memory.
func NewBody(data []byte) *Body { return &Body{data: data, size: int64(len(data))} }

// Size returns the length in bytes.
func (b *Body) Size() int64 { return b.size }

// Bytes returns the body if it is in memory.
func (b *Body) Bytes() ([]byte, bool) { return b.data, b.file == nil }

// File returns the file that holds the body, nil if it is in memory.
func (b *Body) File() SpoolFile { return b.file }

// Reader reads the body from its start. Readers are independent of each other.
func (b *Body) Reader() io.Reader {
	if b.file == nil {
		return bytes.NewReader(b.data)
	}
	return io.NewSectionReader(b.file, 0, b.size)
}
