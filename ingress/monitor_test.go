package ingress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/ingress/kernel"
)

func TestMonitorWarnsWhenTheKernelDropsAndOnlyThen(t *testing.T) {
	var log bytes.Buffer
	var samples []KernelSample
	cfg := Config{
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		Observer: Observer{Kernel: func(s KernelSample) { samples = append(samples, s) }},
	}
	m := newMonitor(&cfg, []socket{{"tcp", netip.MustParseAddrPort("127.0.0.1:1"), nil}, {"udp", netip.MustParseAddrPort("127.0.0.1:2"), nil}})
	counters := kernel.Counters{ListenDrops: 100, SynRetransAnyDirection: 5}
	states := []kernel.Socket{{Queue: 0, Limit: 10}, {Limit: 1000}}
	next := 0
	m.counters = func() (kernel.Counters, error) { return counters, nil }
	m.inspect = func(syscall.Conn) (kernel.Socket, error) {
		s := states[next%2]
		next++
		return s, nil
	}
	sample := func() string {
		log.Reset()
		m.sample()
		return log.String()
	}
	m.last = counters
	if said := sample(); said != "" {
		t.Errorf("what was before is no loss of ours: %s", said)
	}
	counters.SynRetransAnyDirection += 50
	if said := sample(); said != "" {
		t.Errorf("our own dials to dead hosts: %s", said)
	}
	counters.ListenOverflows += 3
	if said := sample(); !strings.Contains(said, "kernel_drops") || !strings.Contains(said, "listen_overflows=3") || !strings.Contains(said, "network namespace") {
		t.Errorf("overflows: %s", said)
	}
	states[0].Queue, states[1].Drops = 10, 7
	if said := sample(); !strings.Contains(said, "own_accept_queue_full") || !strings.Contains(said, "datagrams=7") {
		t.Errorf("own sockets: %s", said)
	}
	states[0].Queue = 1
	if said := sample(); said != "" {
		t.Errorf("nothing new: %s", said)
	}
	if len(samples) != 5 || samples[2].Moved.ListenOverflows != 3 || samples[1].Moved.SynRetransAnyDirection != 50 || len(samples[3].Listeners) != 2 || samples[3].Listeners[1].Drops != 7 {
		t.Errorf("samples %+v", samples)
	}
}

func TestMonitorSamplesOnTimeAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var samples atomic.Int64
		cfg := Config{
			KernelEvery: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Observer: Observer{Kernel: func(KernelSample) { samples.Add(1) }},
		}
		m := newMonitor(&cfg, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.run(ctx); close(done) }()
		time.Sleep(59 * time.Second)
		if got := samples.Load(); got != 5 {
			t.Errorf("%d samples in 59 s, want 5", got)
		}
		cancel()
		<-done
	})
}

func TestMonitorEndsWhereThereIsNothingToRead(t *testing.T) {
	cfg := Config{KernelEvery: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	for _, err := range []error{kernel.ErrUnsupported, errDown} {
		m := newMonitor(&cfg, nil)
		m.counters = func() (kernel.Counters, error) { return kernel.Counters{}, err }
		m.run(t.Context()) // returns
	}
	m := newMonitor(&cfg, []socket{{"tcp", netip.AddrPort{}, nil}})
	m.inspect = func(syscall.Conn) (kernel.Socket, error) { return kernel.Socket{}, errors.New("no netlink here") }
	m.sample() // the counters are told all the same
}

// With a backlog of 1 and one connection allowed, the kernel keeps two more
// waiting and drops the rest; the server itself sees none of them.
func TestOverflowOfOurOwnAcceptQueueIsReported(t *testing.T) {
	samples := make(chan KernelSample, 1000)
	l := listen(t, Config{MaxConns: 1, Backlog: 1, KernelEvery: 10 * time.Millisecond, Observer: Observer{Kernel: func(s KernelSample) {
		select {
		case samples <- s:
		default:
		}
	}}}, false)
	first := l.dialRaw()
	if _, err := io.WriteString(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Fatal(err) // it has the only place
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 12 {
		go func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.in.Addr().String())
			if err == nil {
				<-ctx.Done()
				_ = conn.Close()
			}
		}()
	}
	var moved uint64
	full := false
	for deadline := time.After(guard); moved < 5 || !full; {
		select {
		case s := <-samples:
			moved += s.Moved.ListenOverflows
			for _, sock := range s.Listeners {
				full = full || sock.Network == "tcp" && sock.Addr == l.in.Addr() && sock.Limit == 1 && sock.Queue == 2
			}
		case <-deadline:
			t.Fatalf("overflows moved by %d, queue seen full: %v", moved, full)
		}
	}
}
