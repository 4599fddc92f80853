package testnet

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// ProxyConfig describes a [Proxy].
type ProxyConfig struct {
	// Certificate makes it an https proxy. Nil = http.
	Certificate *tls.Certificate
	// User and Password are demanded when User is set.
	User, Password string
	// Route says where a tunnel to a target leads: a test can have a public
	// address lead to loopback. Nil = to the target itself.
	Route func(target string) string
	// Status refuses every tunnel with it; 0 = none.
	Status int
	// Silent takes requests and never answers.
	Silent bool
}

// Asked is one CONNECT that a proxy got.
type Asked struct {
	Target string // host:port
	From   string // the client's address
	Status int    // how it was answered; 0 = not at all
}

// Proxy is a running CONNECT proxy (RFC 9110 section 9.3.6). Close it.
type Proxy struct {
	config  ProxyConfig
	tcp     net.Listener
	ctx     context.Context //nolint:containedctx // ends the tunnels
	stop    context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once

	mu    sync.Mutex
	asked []Asked
	conns int
}

// StartProxy listens on loopback and serves until Close.
func StartProxy(config ProxyConfig) (*Proxy, error) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{config: config, tcp: tcp}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// URL returns the proxy's URL, with its credentials.
func (p *Proxy) URL() string {
	u := url.URL{Scheme: "http", Host: p.tcp.Addr().String()}
	if p.config.Certificate != nil {
		u.Scheme = "https"
	}
	if p.config.User != "" {
		u.User = url.UserPassword(p.config.User, p.config.Password)
	}
	return u.String()
}

// Asked returns the tunnels that were asked for, in order.
func (p *Proxy) Asked() []Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// Connections counts accepted connections, whatever came over them.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// Close ends every tunnel and waits for the goroutines.
func (p *Proxy) Close() error {
	var err error
	p.closing.Do(func() {
		err = p.tcp.Close()
		p.stop()
		p.wg.Wait()
	})
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.tcp.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		p.conns++
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(raw net.Conn) {
	defer raw.Close()
	defer context.AfterFunc(p.ctx, func() { _ = raw.Close() })()
	conn, from := raw, raw.RemoteAddr().String()
	if p.config.Certificate != nil {
		conn = tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*p.config.Certificate}})
	}
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if p.config.Silent {
		p.note(Asked{Target: req.Host, From: from})
		<-p.ctx.Done()
		return
	}
	far, status := p.open(req)
	p.note(Asked{Target: req.Host, From: from, Status: status})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n\r\n", status, http.StatusText(status)); err != nil || far == nil {
		return
	}
	p.tunnel(conn, in, far)
}

func (p *Proxy) note(a Asked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, a)
}

// open connects to the far end, or returns the status that refuses to.
func (p *Proxy) open(req *http.Request) (net.Conn, int) {
	switch {
	case req.Method != http.MethodConnect:
		return nil, http.StatusMethodNotAllowed
	case !p.authorized(req):
		return nil, http.StatusProxyAuthRequired
	case p.config.Status != 0:
		return nil, p.config.Status
	}
	target := req.Host
	if p.config.Route != nil {
		target = p.config.Route(target)
	}
	far, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(p.ctx, "tcp", target)
	if err != nil {
		return nil, http.StatusBadGateway
	}
	return far, http.StatusOK
}

func (p *Proxy) authorized(req *http.Request) bool {
	if p.config.User == "" {
		return true
	}
	credentials := http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
	user, password, ok := credentials.BasicAuth()
	return ok && user == p.config.User && password == p.config.Password
}

// tunnel copies both ways until either side has ended.
func (p *Proxy) tunnel(near net.Conn, in io.Reader, far net.Conn) {
	defer far.Close()
	defer context.AfterFunc(p.ctx, func() { _ = far.Close() })()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, in)
	_ = far.Close()
	back.Wait()
}
