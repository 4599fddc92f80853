package testnet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// through returns a client that uses the proxy, with another password if one is
// given.
func through(t *testing.T, p *Proxy, ca *CA, password ...string) *http.Client {
	t.Helper()
	u, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range password {
		u.User = url.UserPassword(u.User.Username(), other)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestProxyLeadsWhereItIsToldAndRemembersWhatItWasAsked(t *testing.T) {
	ca, err := NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(Leaf{Names: []string{"hook.example", "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(Config{Certificate: &cert})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, config := range map[string]ProxyConfig{
		"http": {User: "u", Password: "p"}, "https": {User: "u", Password: "p", Certificate: &cert},
	} {
		t.Run(name, func(t *testing.T) {
			config.Route = func(string) string { return r.Addr() }
			p, err := StartProxy(config)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			resp, err := through(t, p, ca).Post("https://hook.example/in", "text/plain", strings.NewReader("x"))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v %v", resp, err)
			}
			_ = resp.Body.Close()
			if resp, err := through(t, p, ca, "wrong").Get("https://hook.example/in"); err == nil {
				_ = resp.Body.Close()
				t.Error("a wrong password opened a tunnel")
			}
			asked := p.Asked()
			for i := range asked {
				if !strings.HasPrefix(asked[i].From, "127.0.0.1:") {
					t.Errorf("from %s", asked[i].From)
				}
				asked[i].From = ""
			}
			if want := []Asked{{Target: "hook.example:443", Status: 200}, {Target: "hook.example:443", Status: 407}}; !slices.Equal(asked, want) {
				t.Errorf("asked %v, want %v", asked, want)
			}
			if p.Connections() != 2 {
				t.Errorf("%d connections", p.Connections())
			}
		})
	}
}

func TestProxyCloseEndsItsTunnelsAndTheSilentOnes(t *testing.T) {
	far, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for name, config := range map[string]ProxyConfig{"open": {}, "silent": {Silent: true}} {
		t.Run(name, func(t *testing.T) {
			p, err := StartProxy(config)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", far.Addr()); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			if !config.Silent {
				if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
					t.Fatalf("%q %v", line, err)
				}
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, in); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
		})
	}
}
