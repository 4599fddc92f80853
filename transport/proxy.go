package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// maxProxyAnswer bounds what a proxy may say before the tunnel begins.
const maxProxyAnswer = 16 << 10

// connectByProxy opens a tunnel. The target has been judged, and the proxy is
// asked for the judged literal; its own address is the operator's choice and is
// not. Targets are asked for one after the other: a proxy does its own racing.
func (d *tcpDialer) connectByProxy(ctx context.Context, egress Egress, route netguard.Route) (net.Conn, error) {
	var errs []error
	for _, target := range route.Connect {
		conn, err := d.tunnel(ctx, egress, route.Proxy, target)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("proxy %s: %w", route.Proxy.Host, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// tunnel asks the proxy for one target.
func (d *tcpDialer) tunnel(ctx context.Context, egress Egress, proxy *url.URL, target string) (net.Conn, error) {
	conn, err := d.dialProxy(ctx, egress, proxy)
	if err != nil {
		return nil, err
	}
	// The context ends a read or write by moving the deadline into the past.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = askForTunnel(conn, proxy, target)
	if !stop() { // what the read or write says is a consequence
		err = fmt.Errorf("connect %s: %w", target, context.Cause(ctx))
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (d *tcpDialer) dialProxy(ctx context.Context, egress Egress, proxy *url.URL) (net.Conn, error) {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	conn, err := d.connectToProxy(ctx, egress, proxy.Hostname(), port)
	if err != nil || proxy.Scheme != "https" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{
		ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12, RootCAs: d.t.cfg.RootCAs,
		NextProtos: []string{protoHTTP1},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// connectToProxy resolves the proxy's name as the operator's own programs would
// and connects from the egress's source address, which must be of the target's
// family: so the name has to be resolved here.
func (d *tcpDialer) connectToProxy(ctx context.Context, egress Egress, host, port string) (net.Conn, error) {
	if d.t.cfg.DialTCP != nil {
		return d.t.cfg.DialTCP(ctx, "tcp", net.JoinHostPort(host, port))
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	return race(ctx, d.t.cfg.DialStagger, addrs, nil,
		func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
			addr = addr.Unmap()
			return plainDialer(egress, addr).DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), port))
		},
		func(c net.Conn) { _ = c.Close() }, d.t.pool.background)
}

// askForTunnel speaks CONNECT (RFC 9110 section 9.3.6).
func askForTunnel(conn net.Conn, proxy *url.URL, target string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	req.Header["User-Agent"] = noUserAgent
	if err := req.Write(conn); err != nil {
		return fmt.Errorf("connect %s: %w", target, err)
	}
	// The far end of the tunnel speaks only when it is spoken to, so nothing
	// of it can be lost in this reader.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxProxyAnswer)), req)
	if err != nil {
		return fmt.Errorf("connect %s: %w", target, err)
	}
	if resp.StatusCode/100 != 2 { // any of them begins the tunnel
		return fmt.Errorf("connect %s: the proxy answered %d", target, resp.StatusCode)
	}
	return nil
}
