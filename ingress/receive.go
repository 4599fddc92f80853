package ingress

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// Why a body was not received.
var (
	errTooLarge = errors.New("body is too large")
	errBusy     = errors.New("too much is being received")
	errSpool    = errors.New("spool file")
)

// Sizes of what is kept of a body in memory.
const (
	firstChunk = 4 << 10
	probeSize  = 512
)

// receiver reads one body: hashed as it arrives, in memory up to a bound and in a
// spool file above it, and never more than the limit, which is an error and no
// truncation. Close gives back what it took.
//
//	bytes ─► digest ─► check (signature) ─► buffer ──(bound)──► spool file
//
// The buffer grows with what has arrived: a length that is only declared costs
// nothing.
type receiver struct {
	limit  int64     // most bytes of the body
	inRAM  int64     // most of them in memory; at least limit = never a file
	check  io.Writer // sees every byte; nil = nobody
	spool  Spool
	memory *budget
	disk   *budget

	digest  hash.Hash
	buf     []byte
	probe   [probeSize]byte // what arrives after a full buffer, to tell the end from more
	file    SpoolFile
	size    int64
	ended   bool  // the body was read to its end
	ram     int64 // taken out of memory
	spooled int64 // taken out of disk
}

// readAll reads r to its end. Its error is errTooLarge, errBusy, one that wraps
// errSpool, or r's own.
func (b *receiver) readAll(ctx context.Context, r io.Reader) error {
	b.digest = sha256.New()
	b.buf = make([]byte, 0, firstChunk)
	for {
		room := b.room()
		n, err := r.Read(room)
		if n > 0 {
			if takeErr := b.take(ctx, room[:n]); takeErr != nil {
				return takeErr
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // io.Reader returns it bare
			b.ended = true
			return nil
		case err != nil:
			return err
		}
	}
}

// room returns where the next bytes go.
func (b *receiver) room() []byte {
	have := int64(cap(b.buf))
	switch {
	case b.file != nil:
		return b.buf[:cap(b.buf)]
	case len(b.buf) < cap(b.buf):
		return b.buf[len(b.buf):cap(b.buf)]
	case have < b.inRAM:
		want := min(2*have, b.inRAM)
		if !b.memory.take(want - have) {
			break // the file, or errBusy, follows
		}
		b.ram += want - have
		grown := make([]byte, len(b.buf), want)
		copy(grown, b.buf)
		b.buf = grown
		return b.buf[len(b.buf):cap(b.buf)]
	}
	return b.probe[:]
}

// take accounts for bytes that have arrived in room.
func (b *receiver) take(ctx context.Context, piece []byte) error {
	if b.size += int64(len(piece)); b.size > b.limit {
		return errTooLarge
	}
	_, _ = b.digest.Write(piece) // a hash never fails
	if b.check != nil {
		if _, err := b.check.Write(piece); err != nil {
			return err
		}
	}
	switch {
	case b.file != nil:
	case len(b.buf) < cap(b.buf):
		b.buf = b.buf[:len(b.buf)+len(piece)] // it is there already
		return nil
	default:
		if err := b.spill(ctx); err != nil {
			return err
		}
	}
	return b.write(piece)
}

// spill moves what is in memory to a file.
func (b *receiver) spill(ctx context.Context) error {
	if b.inRAM >= b.limit {
		return errBusy // the scheme needs it in memory, where there is no room
	}
	file, err := b.spool.Create(ctx)
	if err != nil {
		return fmt.Errorf("%w: create: %w", errSpool, err)
	}
	b.file = file
	return b.write(b.buf)
}

func (b *receiver) write(piece []byte) error {
	if !b.disk.take(int64(len(piece))) {
		return errBusy
	}
	b.spooled += int64(len(piece))
	if _, err := b.file.Write(piece); err != nil {
		return fmt.Errorf("%w: write: %w", errSpool, err)
	}
	return nil
}

// body returns what was received. It is valid until close.
func (b *receiver) body() *Body {
	if b.file != nil {
		return &Body{file: b.file, size: b.size}
	}
	return &Body{data: b.buf, size: b.size}
}

// sum returns the SHA-256 of what was received.
func (b *receiver) sum() (out [sha256.Size]byte) {
	b.digest.Sum(out[:0])
	return out
}

// close gives everything back. The bytes in memory may live on in the store,
// which has bounds of its own.
func (b *receiver) close() error {
	b.memory.give(b.ram)
	b.disk.give(b.spooled)
	b.ram, b.spooled = 0, 0
	if b.file == nil {
		return nil
	}
	file := b.file
	b.file = nil
	return file.Discard()
}

// timedOut reports whether reading failed because the deadline passed; HTTP/1,
// HTTP/2 and HTTP/3 all say so in this way.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
