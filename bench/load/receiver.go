package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
)

// Receiver answers every POST with 200 and counts it. Each of its origins is a
// port of its own.
type Receiver struct {
	listeners []net.Listener
	server    *http.Server
	serving   sync.WaitGroup
	live      atomic.Pointer[phase]
	buffers   sync.Pool

	mu     sync.Mutex
	secure *secureOrigin // nil until it was asked for
}

// maxBody is far above any benchmark's.
const maxBody = 16 << 20

// NewReceiver listens on origins free ports of loopback.
func NewReceiver(origins int) (*Receiver, error) {
	r := &Receiver{}
	r.buffers.New = func() any { b := make([]byte, 4<<10); return &b }
	for range origins {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receiver: %w", err), r.closeListeners())
		}
		r.listeners = append(r.listeners, l)
	}
	r.server = &http.Server{
		Handler: http.HandlerFunc(r.handle), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	if err := r.Begin(Phase{Hang: -1}); err != nil {
		return nil, errors.Join(err, r.closeListeners())
	}
	for _, l := range r.listeners {
		r.serving.Go(func() { _ = r.server.Serve(l) })
	}
	return r, nil
}

func (r *Receiver) closeListeners() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Origins returns the base URLs.
func (r *Receiver) Origins() []string {
	var out []string
	for _, l := range r.listeners {
		out = append(out, "http://"+l.Addr().String())
	}
	return out
}

// Close ends every connection.
func (r *Receiver) Close() error {
	close(r.live.Load().release)
	err := r.server.Close()
	r.serving.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secure != nil {
		err = errors.Join(err, r.secure.close())
	}
	return err
}

// Begin starts a phase and ends the one before; requests that hung in it are
// answered.
func (r *Receiver) Begin(p Phase) error {
	next, err := newPhase(p)
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	if before := r.live.Swap(next); before != nil {
		close(before.release)
	}
	return nil
}

// Seen returns what became of the phase so far.
func (r *Receiver) Seen() Seen { return r.live.Load().seen() }

// Mark makes the phase remember when the next new delivery arrives.
func (r *Receiver) Mark() {
	p := r.live.Load()
	p.afterMark.Store(0)
	p.markAt.Store(int64(host.Now()))
}

// Wait returns when so many deliveries have arrived, requests hang and strays
// have come, or when nothing new has come for the quiet time. It reports whether the number
// was reached.
func (r *Receiver) Wait(ctx context.Context, w Wait) (bool, error) {
	p := r.live.Load()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	count, since := int64(-1), time.Now()
	for {
		arrived, hanging, stray := p.arrived.Load(), p.hanging.Load(), p.stray.Load()
		if arrived >= int64(w.Arrived) && hanging >= int64(w.Hanging) && stray >= int64(w.Stray) {
			return true, nil
		}
		if sum := arrived + hanging + stray; sum != count {
			count, since = sum, time.Now()
		} else if w.Quiet > 0 && time.Since(since) > w.Quiet {
			return false, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// Wait says what to wait for.
type Wait struct {
	Arrived int           `json:"arrived"`
	Hanging int           `json:"hanging"`
	Stray   int           `json:"stray"` // requests that the phase does not expect
	Quiet   time.Duration `json:"quiet"` // give up after so long without anything new; 0 = never
}

func (r *Receiver) handle(w http.ResponseWriter, req *http.Request) {
	p := r.live.Load()
	buffer, ok := r.buffers.Get().(*[]byte)
	if !ok {
		return
	}
	defer r.buffers.Put(buffer)
	body, err := readBody(req, buffer)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	subscriber, ok := parsePath(req.URL.Path)
	if !ok {
		p.stray.Add(1)
		return
	}
	if p.hangs(subscriber) {
		p.hanging.Add(1)
		p.hold(req.Context(), nil)
		return
	}
	good := p.arrive(req.Header, subscriber, body)
	if p.Delay > 0 {
		timer := time.NewTimer(p.Delay/2 + rand.N(p.Delay)) //nolint:gosec // not secret
		defer timer.Stop()
		p.hold(req.Context(), timer.C)
	}
	if !good {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// hold waits for the end of the phase, of the request, or of a timer.
func (p *phase) hold(ctx context.Context, timer <-chan time.Time) {
	select {
	case <-timer:
	case <-p.release:
	case <-ctx.Done():
	}
}

// readBody reads a body of a known length into a buffer that is used again.
func readBody(req *http.Request, buffer *[]byte) ([]byte, error) {
	if req.ContentLength < 0 || req.ContentLength > maxBody {
		return nil, errors.New("length is unknown or too large")
	}
	n := int(req.ContentLength)
	if n > len(*buffer) {
		*buffer = make([]byte, n)
	}
	body := (*buffer)[:n]
	_, err := io.ReadFull(req.Body, body)
	return body, err
}

// ServeReceiver is the receiver's process: it answers calls until in ends.
func ServeReceiver(ctx context.Context, origins int, in io.Reader, out io.Writer) error {
	r, err := NewReceiver(origins)
	if err != nil {
		return err
	}
	err = worker.Serve(ctx, in, out, map[string]worker.Method{
		"origins": func(context.Context, json.RawMessage) (any, error) { return r.Origins(), nil },
		"secure":  func(context.Context, json.RawMessage) (any, error) { return r.Secure() },
		"begin":   worker.Handle(func(_ context.Context, p Phase) (bool, error) { return true, r.Begin(p) }),
		"seen":    func(context.Context, json.RawMessage) (any, error) { return r.Seen(), nil },
		"mark":    func(context.Context, json.RawMessage) (any, error) { r.Mark(); return true, nil },
		"wait":    worker.Handle(r.Wait),
	})
	return errors.Join(err, r.Close())
}
