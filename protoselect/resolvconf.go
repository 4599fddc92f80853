package protoselect

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"strings"
)

// maxNameservers is what the system's own resolver reads (resolv.conf(5)).
const maxNameservers = 3

// systemServers returns the nameservers of /etc/resolv.conf; none where there
// is no such file, which turns lookups of HTTPS records off.
func systemServers() []netip.AddrPort {
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read from
	return parseResolvConf(f)
}

// parseResolvConf reads the nameserver lines; what it cannot read it skips.
func parseResolvConf(r io.Reader) []netip.AddrPort {
	var servers []netip.AddrPort
	lines := bufio.NewScanner(io.LimitReader(r, 64<<10))
	for lines.Scan() && len(servers) < maxNameservers {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line, _, _ = strings.Cut(line, ";")
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53))
		}
	}
	return servers
}
