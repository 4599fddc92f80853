package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrUnsupported: this system does not have these figures.
var ErrUnsupported = errors.New("kernel figures are not available on this system")

// Counters are totals since the network namespace was made. A counter that the
// kernel does not have is 0.
type Counters struct {
	// ListenOverflows are handshakes that ended with a full accept queue.
	ListenOverflows uint64
	// ListenDrops are all SYNs and handshakes dropped by listeners, those
	// overflows included.
	ListenDrops uint64
	// SyncookiesSent are SYNs answered without remembering them.
	SyncookiesSent uint64
	// SynRetransAnyDirection are SYN and SYN-ACK retransmissions. The process's
	// own dials to hosts that do not answer count as well, so alone it says
	// nothing about a listener.
	SynRetransAnyDirection uint64
	// UDPRcvbufErrors and UDP6RcvbufErrors are datagrams dropped because a
	// socket's receive buffer was full.
	UDPRcvbufErrors  uint64
	UDP6RcvbufErrors uint64
}

// Sub returns how much c grew since earlier. A counter that shrank (another
// namespace) counts from 0.
func (c Counters) Sub(earlier Counters) Counters {
	since := func(now, then uint64) uint64 {
		if now < then {
			return now
		}
		return now - then
	}
	return Counters{
		ListenOverflows:        since(c.ListenOverflows, earlier.ListenOverflows),
		ListenDrops:            since(c.ListenDrops, earlier.ListenDrops),
		SyncookiesSent:         since(c.SyncookiesSent, earlier.SyncookiesSent),
		SynRetransAnyDirection: since(c.SynRetransAnyDirection, earlier.SynRetransAnyDirection),
		UDPRcvbufErrors:        since(c.UDPRcvbufErrors, earlier.UDPRcvbufErrors),
		UDP6RcvbufErrors:       since(c.UDP6RcvbufErrors, earlier.UDP6RcvbufErrors),
	}
}

// procNet is where the kernel shows this process's network namespace.
const procNet = "/proc/self/net"

// ReadCounters reads the counters of this process's network namespace.
func ReadCounters() (Counters, error) { return readCounters(procNet) }

func readCounters(dir string) (Counters, error) {
	var c Counters
	netstat, err := os.ReadFile(filepath.Join(dir, "netstat"))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return c, ErrUnsupported
		}
		return c, fmt.Errorf("read kernel counters: %w", err)
	}
	snmp, err := os.ReadFile(filepath.Join(dir, "snmp"))
	if err != nil {
		return c, fmt.Errorf("read kernel counters: %w", err)
	}
	// A kernel without IPv6 does not have this file.
	snmp6, err := os.ReadFile(filepath.Join(dir, "snmp6"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("read kernel counters: %w", err)
	}
	tcp, udp, udp6 := parseTable(netstat, "TcpExt"), parseTable(snmp, "Udp"), parseList(snmp6)
	return Counters{
		ListenOverflows:        tcp["ListenOverflows"],
		ListenDrops:            tcp["ListenDrops"],
		SyncookiesSent:         tcp["SyncookiesSent"],
		SynRetransAnyDirection: tcp["TCPSynRetrans"],
		UDPRcvbufErrors:        udp["RcvbufErrors"],
		UDP6RcvbufErrors:       udp6["Udp6RcvbufErrors"],
	}, nil
}

// parseTable reads the counters of one group from pairs of lines "Group: name
// name …" and "Group: 1 2 …". What does not fit is passed over: a figure more
// or less must not blind the others.
func parseTable(text []byte, group string) map[string]uint64 {
	out := map[string]uint64{}
	var names []string
	for line := range bytes.Lines(text) {
		rest, ok := strings.CutPrefix(string(line), group+":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if names == nil {
			names = fields
			continue
		}
		for i, value := range fields[:min(len(fields), len(names))] {
			// Some values of the table are signed; none of ours.
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				out[names[i]] = n
			}
		}
		names = nil
	}
	return out
}

// parseList reads lines of "name value".
func parseList(text []byte) map[string]uint64 {
	out := map[string]uint64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			out[fields[0]] = n
		}
	}
	return out
}
