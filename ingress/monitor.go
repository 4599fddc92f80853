package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/ingress/kernel"
)

// socket is one of our listeners.
type socket struct {
	network string
	addr    netip.AddrPort
	conn    syscall.Conn
}

// monitor samples what the kernel drops, and warns when it does: the server
// itself cannot see it.
type monitor struct {
	every    time.Duration
	sockets  []socket
	log      *slog.Logger
	observer *Observer
	counters func() (kernel.Counters, error)
	inspect  func(syscall.Conn) (kernel.Socket, error)

	last  kernel.Counters
	drops map[netip.AddrPort]uint32 // of our UDP sockets, at the last sample
}

func newMonitor(cfg *Config, sockets []socket) *monitor {
	return &monitor{
		every: cfg.KernelEvery, sockets: sockets, log: cfg.Logger, observer: &cfg.Observer,
		counters: kernel.ReadCounters, inspect: kernel.Inspect, drops: map[netip.AddrPort]uint32{},
	}
}

// run samples until ctx ends, or at once gives up where there is nothing to read.
func (m *monitor) run(ctx context.Context) {
	var err error
	if m.last, err = m.counters(); err != nil {
		level := slog.LevelWarn
		if errors.Is(err, kernel.ErrUnsupported) {
			level = slog.LevelDebug
		}
		m.log.Log(ctx, level, "kernel_counters_unavailable", "error", err.Error())
		return
	}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.sample()
		}
	}
}

func (m *monitor) sample() {
	now, err := m.counters()
	if err != nil {
		m.log.Warn("kernel_counters_unreadable", "error", err.Error())
		return
	}
	s := KernelSample{Counters: now, Moved: now.Sub(m.last)}
	m.last = now
	for _, sock := range m.sockets {
		state, err := m.inspect(sock.conn)
		if err != nil {
			continue // it is being closed, or sock_diag is not for us; the counters stay
		}
		s.Listeners = append(s.Listeners, ListenerSample{sock.network, sock.addr, state})
		m.warnSocket(sock, state)
	}
	m.warn(s.Moved)
	if m.observer.Kernel != nil {
		m.observer.Kernel(s)
	}
}

// warn tells of losses in the network namespace. Retransmitted SYNs are not among
// them: our own dials to dead hosts raise that counter all the time.
func (m *monitor) warn(moved kernel.Counters) {
	moved.SynRetransAnyDirection = 0
	if moved == (kernel.Counters{}) {
		return
	}
	m.log.Warn("kernel_drops",
		"scope", "network namespace", "listen_overflows", moved.ListenOverflows, "listen_drops", moved.ListenDrops,
		"syncookies_sent", moved.SyncookiesSent, "udp_rcvbuf_errors", moved.UDPRcvbufErrors, "udp6_rcvbuf_errors", moved.UDP6RcvbufErrors)
}

func (m *monitor) warnSocket(sock socket, state kernel.Socket) {
	before := m.drops[sock.addr]
	m.drops[sock.addr] = state.Drops
	if state.Drops > before {
		m.log.Warn("own_udp_socket_drops", "addr", sock.addr.String(), "datagrams", state.Drops-before)
	}
	if sock.network == "tcp" && state.Limit > 0 && state.Queue >= state.Limit {
		m.log.Warn("own_accept_queue_full", "addr", sock.addr.String(), "waiting", state.Queue, "limit", state.Limit)
	}
}
