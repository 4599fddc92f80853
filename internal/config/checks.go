package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// checkListen accepts host:port, where host may be empty, a name or an address.
func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return bad("is not host:port", "write one such as 127.0.0.1:8080 or [::1]:8080")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return bad("its port is not a number from 0 to 65535", "write the port in digits")
	}
	if strings.ContainsAny(host, " \t/@?#") {
		return bad("its host is not a name or an address", "write one such as 127.0.0.1:8080")
	}
	return nil
}

// checkToken refuses what cannot be a bearer token (RFC 6750 section 2.1), or is
// too short to be a secret.
func checkToken(s string) error {
	const least = 16
	if len(s) < least {
		return bad("is shorter than 16 bytes", "make one with: openssl rand -base64 32")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return bad("holds a space or another byte that a header cannot", "use letters, digits and -._~+/=")
		}
	}
	return nil
}

// checkName accepts the id of a tenant, or none.
func checkName(s string) error {
	if s == "" || delivery.CheckName(s) == nil {
		return nil
	}
	return bad("is not an id of a tenant", "write 1 to 128 of A-Z a-z 0-9 _ -")
}

// checkOrigin accepts host or host:port.
func checkOrigin(s string) error {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return bad("its port is not a number from 1 to 65535", "write host or host:port")
		}
		host = h
	}
	return checkHost(host)
}

func checkHostPattern(s string) error { return checkHost(strings.TrimPrefix(s, "*.")) }

func checkHost(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if s == "" || len(s) > 253 || strings.ContainsAny(s, " \t/:@?#*\\") {
		return bad("is not a host", "write the name alone, without scheme and path")
	}
	return nil
}

// Checks of URLs never quote them: they may hold credentials.

func checkProxy(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "":
		return bad("is not a URL", "write one such as http://proxy.example:3128")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("its scheme is not http or https", "write one such as http://proxy.example:3128")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return bad("goes on after the port", "end it there")
	}
	return nil
}

func checkRedis(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return bad("is not a URL", "write one such as redis://redis.example:6379/0")
	case u.Scheme == "unix" && u.Path != "":
		return nil
	case u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "":
		return bad("is not a Redis URL", "write one such as redis://redis.example:6379/0, or rediss:// for TLS")
	}
	return nil
}

// checkControlPlane refuses plain http but to this machine: secrets travel.
func checkControlPlane(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return bad("is not an http or https URL", "write one such as https://control.example/v1")
	case u.User != nil:
		return bad("holds credentials", "put the token into ingress.control_plane_token")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("has a query or a fragment", "end it with the path")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return bad("is plain http to another machine, and secrets travel", "use https")
	}
	return nil
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost"
}
