package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// inheritedSocket is the descriptor of the socket to the parent in a process
// that joins a link.
const inheritedSocket = 3

// estateServer is the process behind the link: one receiver for each kind, and
// the ends of the probes.
type estateServer struct {
	receivers [kinds]*testnet.Receiver
	info      servers
	echo      net.PacketConn
	sink      net.PacketConn
	serving   sync.WaitGroup

	mu      sync.Mutex // guards the sink's counts
	sunk    sunkDatagrams
	firstAt time.Duration // machine clock
}

// ServeEstate is the server's process of `bench transports`: it answers calls
// until in ends. With joined it makes the link's device first.
func ServeEstate(ctx context.Context, joined bool, in io.Reader, out io.Writer) error {
	if joined {
		if err := link.Join(inheritedSocket, serverAddrs[:]); err != nil {
			return err
		}
	}
	s := &estateServer{}
	err := s.listen(joined)
	if err == nil {
		err = worker.Serve(ctx, in, out, map[string]worker.Method{
			"info":   func(context.Context, json.RawMessage) (any, error) { return s.info, nil },
			"counts": func(context.Context, json.RawMessage) (any, error) { return s.counts(), nil },
			"sink":   func(context.Context, json.RawMessage) (any, error) { return s.takeSink(), nil },
		})
	}
	return errors.Join(err, s.close())
}

func (s *estateServer) listen(joined bool) error {
	ca, err := testnet.NewCA()
	if err != nil {
		return err
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"*." + domain}})
	if err != nil {
		return err
	}
	s.info.CAPEM = string(ca.PEM())
	loop := netip.MustParseAddr("127.0.0.1")
	for k := range kinds {
		config := testnet.Config{Certificate: &cert, HTTP3: k != kindTCP && k != kindWrong, AltSvcPort: k == kindWrong, Addr: netip.AddrPortFrom(serverAddrs[k], 443).String()}
		if !joined {
			config.Addr = netip.AddrPortFrom(loop, 0).String()
			if k == kindDying {
				continue // nobody is in between who could kill it
			}
			// Nobody answers on UDP: refused, not silent as behind a firewall.
			config.HTTP3, config.AltSvcPort = k == kindH3, k == kindBlocked || k == kindWrong
		}
		if s.receivers[k], err = testnet.Start(config); err != nil {
			return fmt.Errorf("server %s: %w", kindNames[k], err)
		}
		if s.info.Addr[k], err = netip.ParseAddrPort(s.receivers[k].Addr()); err != nil {
			return err
		}
	}
	at := serverAddrs[kindH3]
	if !joined {
		at = loop
	}
	return s.listenProbes(at)
}

func (s *estateServer) listenProbes(at netip.Addr) error {
	var err error
	if s.echo, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 0).String()); err != nil {
		return err
	}
	if s.sink, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 0).String()); err != nil {
		return err
	}
	// What the probe looks for is lost on the link, not in this socket.
	if c, ok := s.sink.(*net.UDPConn); ok {
		_ = link.LargeBuffer(c)
	}
	if s.info.Echo, err = netip.ParseAddrPort(s.echo.LocalAddr().String()); err != nil {
		return err
	}
	if s.info.Sink, err = netip.ParseAddrPort(s.sink.LocalAddr().String()); err != nil {
		return err
	}
	s.serving.Go(func() {
		each(s.echo, func(b []byte, from net.Addr) { _, _ = s.echo.WriteTo(b, from) })
	})
	s.serving.Go(func() { each(s.sink, s.swallow) })
	return nil
}

// each calls do with every datagram until the socket is closed.
func each(conn net.PacketConn, do func(b []byte, from net.Addr)) {
	buffer := make([]byte, 2<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		do(buffer[:n], from)
	}
}

func (s *estateServer) swallow(b []byte, _ net.Addr) {
	now := host.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sunk.Datagrams == 0 {
		s.firstAt = now
	}
	s.sunk.Datagrams++
	s.sunk.Bytes += int64(len(b))
	s.sunk.Over = now - s.firstAt
}

// sunkDatagrams is what the sink got since it was asked last.
type sunkDatagrams struct {
	Datagrams int64         `json:"datagrams"`
	Bytes     int64         `json:"bytes"`   // UDP payload
	Over      time.Duration `json:"over_ns"` // from the first to the last
}

func (s *estateServer) takeSink() sunkDatagrams {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.sunk
	s.sunk = sunkDatagrams{}
	return out
}

// estateCounts is what all servers saw so far.
type estateCounts struct {
	Requests   int64 `json:"requests"`
	Duplicates int64 `json:"duplicates"` // answered 2xx more than once
	Resent     int64 `json:"resent"`     // POSTs of one try beyond the first
	TCP        int64 `json:"tcp"`        // connections
	QUIC       int64 `json:"quic"`
}

func (s *estateServer) counts() estateCounts {
	var out estateCounts
	for _, r := range s.receivers {
		if r == nil {
			continue
		}
		c := r.Tally().Counts()
		out.Requests += c.Requests
		out.Duplicates += c.Duplicates
		out.Resent += c.ResentAttempts
		out.TCP += c.TCPConnections
		out.QUIC += c.QUICConnections
	}
	return out
}

func (s *estateServer) close() error {
	var errs []error
	for _, r := range s.receivers {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	for _, c := range []net.PacketConn{s.echo, s.sink} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	s.serving.Wait()
	return errors.Join(errs...)
}
