package link

import (
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
)

// mtu is the devices', the usual Ethernet's.
const mtu = 1500

// Link carries packets between two TUN devices. Set changes what it does to
// them; at first it only passes them on.
type Link struct {
	client, server *os.File
	counter        *counter
	up, down       *direction
	rules          atomic.Pointer[map[netip.Addr]Rule]
	wg             sync.WaitGroup
}

// New starts to carry packets between the devices behind two descriptors, as
// [Receive] returns them. The link owns them until Close.
func New(client, server *os.File) *Link {
	l := &Link{client: client, server: server, counter: newCounter()}
	l.rules.Store(&map[netip.Addr]Rule{})
	l.up = newDirection(l, client, server, true)
	l.down = newDirection(l, server, client, false)
	for _, d := range []*direction{l.up, l.down} {
		l.wg.Go(d.read)
		l.wg.Go(d.write)
	}
	return l
}

// Set changes shapes and rules (by the server's address), and draws chance from
// the seed anew. What is on its way arrives as it was decided before.
func (l *Link) Set(up, down Shape, rules map[netip.Addr]Rule, seed uint64) error {
	if err := errors.Join(up.Validate(), down.Validate()); err != nil {
		return err
	}
	rules = maps.Clone(rules)
	l.rules.Store(&rules)
	l.up.set(newShaper(up, seed))
	l.down.set(newShaper(down, ^seed))
	return nil
}

// Take returns what went over the link since the last call.
func (l *Link) Take() Counts { return l.counter.take() }

// Close ends the link. The devices vanish with their namespaces.
func (l *Link) Close() error {
	err := errors.Join(l.client.Close(), l.server.Close())
	l.up.stop()
	l.down.stop()
	l.wg.Wait()
	return err
}

// direction is one way of a link: a goroutine that reads packets and decides
// their fate, and one that hands them over when they arrive.
//
// Invariant: flying is in the order of arrival.
type direction struct {
	link     *Link
	from, to io.ReadWriter
	isUp     bool

	mu      sync.Mutex
	more    *sync.Cond // flying is not empty, or stopped
	shaper  *shaper
	flying  []flight
	stopped bool
}

type flight struct {
	at   time.Duration
	data []byte
}

func newDirection(l *Link, from, to io.ReadWriter, isUp bool) *direction {
	d := &direction{link: l, from: from, to: to, isUp: isUp, shaper: newShaper(Shape{}, 0)}
	d.more = sync.NewCond(&d.mu)
	return d
}

func (d *direction) set(s *shaper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.last = d.shaper.last // order is kept across the change
	d.shaper = s
}

func (d *direction) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.more.Signal()
}

// read ends when the device is closed.
func (d *direction) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := d.from.Read(buffer)
		if err != nil {
			return
		}
		if p, ok := parse(buffer[:n]); ok {
			d.admit(p, buffer[:n])
		}
	}
}

func (d *direction) admit(p packet, data []byte) {
	server := p.dst
	if !d.isUp {
		server = p.src
	}
	var at time.Duration
	f := filtered
	d.mu.Lock()
	if !(*d.link.rules.Load())[server].drops(p) {
		at, f = d.shaper.admit(host.Now(), len(data))
	}
	if f == passed {
		d.flying = append(d.flying, flight{at, append([]byte(nil), data...)})
		d.more.Signal()
	}
	d.mu.Unlock()
	d.link.counter.saw(p, d.isUp, len(data), f)
}

// next waits for a packet that is on its way; false = stopped.
func (d *direction) next() (flight, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.flying) == 0 && !d.stopped {
		d.more.Wait()
	}
	if d.stopped {
		return flight{}, false
	}
	f := d.flying[0]
	d.flying[0] = flight{}
	if d.flying = d.flying[1:]; len(d.flying) == 0 {
		d.flying = nil
	}
	return f, true
}

// write hands packets over at their time.
func (d *direction) write() {
	defer exactly()()
	for {
		f, ok := d.next()
		if !ok {
			return
		}
		sleepUntil(f.at)
		if _, err := d.to.Write(f.data); errors.Is(err, os.ErrClosed) {
			return
		}
		// Another error is the device's own drop: its queue is full, or it is down.
		d.link.counter.delivered(host.Now() - f.at)
	}
}
