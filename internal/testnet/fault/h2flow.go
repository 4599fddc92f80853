package fault

import (
	"io"
	"net"
	"sync"
)

// flow is what may be sent on a connection of HTTP/2 and on each of its streams
// (RFC 9113 section 5.2).
type flow struct {
	mu      sync.Mutex
	more    *sync.Cond
	conn    int64
	start   int64 // of a new stream
	streams map[uint32]int64
	closed  bool
}

func (f *flow) init() {
	f.more = sync.NewCond(&f.mu)
	f.conn, f.start, f.streams = 65535, 65535, map[uint32]int64{}
}

func (f *flow) open(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[id] = f.start
}

func (f *flow) forget(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, id)
	f.more.Broadcast()
}

func (f *flow) grow(id uint32, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == 0 {
		f.conn += n
	} else if _, ok := f.streams[id]; ok {
		f.streams[id] += n
	}
	f.more.Broadcast()
}

// initial changes the window of all streams (RFC 9113 section 6.9.2).
func (f *flow) initial(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.streams {
		f.streams[id] += n - f.start
	}
	f.start = n
	f.more.Broadcast()
}

func (f *flow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.more.Broadcast()
}

// take waits for up to n bytes of a stream. It fails when the stream or the
// connection has ended.
func (f *flow) take(id uint32, n int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		window, ok := f.streams[id]
		if f.closed || !ok {
			return 0, net.ErrClosed
		}
		if got := min(int64(n), window, f.conn); got > 0 {
			f.streams[id] -= got
			f.conn -= got
			return int(got), nil
		}
		f.more.Wait()
	}
}

// inbox holds a request's body between the connection's reader and the request.
// Flow control bounds it.
type inbox struct {
	mu    sync.Mutex
	parts []part
	err   error // io.EOF at the body's end
	ready chan struct{}
}

// part is the payload of one DATA frame.
type part struct {
	data    []byte
	padding int
}

func (b *inbox) init() { b.ready = make(chan struct{}, 1) }

func (b *inbox) add(p []byte, padding int) {
	b.mu.Lock()
	b.parts = append(b.parts, part{append([]byte(nil), p...), padding})
	b.mu.Unlock()
	b.wake()
}

// end ends the body: nil at its proper end.
func (b *inbox) end(err error) {
	b.mu.Lock()
	if err == nil {
		err = io.EOF
	}
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// next waits for the next part.
func (b *inbox) next(gone <-chan struct{}) (data []byte, padding int, err error) {
	for {
		b.mu.Lock()
		if len(b.parts) > 0 {
			p := b.parts[0]
			b.parts = b.parts[1:]
			b.mu.Unlock()
			return p.data, p.padding, nil
		}
		err := b.err
		b.mu.Unlock()
		if err != nil {
			return nil, 0, err
		}
		select {
		case <-b.ready:
		case <-gone:
			return nil, 0, net.ErrClosed
		}
	}
}

// drop throws away what is left and returns its length.
func (b *inbox) drop() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, p := range b.parts {
		n += len(p.data) + p.padding
	}
	b.parts = nil
	return n
}
