package transport

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// The two benchmarks send the same POST to the same server: once over the bare
// single-connection clients, once over the transport. What the second costs more
// is the price of the pool, the proofs and the limits.

var benchBody = strings.Repeat("b", 1<<10)

type benchGuard struct{}

func (benchGuard) Route(_ context.Context, _ string, port uint16) (netguard.Route, error) {
	return netguard.Route{Addrs: []netip.AddrPort{netip.AddrPortFrom(loopback, port)}}, nil
}
func (benchGuard) DialControl(context.Context, string, string, syscall.RawConn) error { return nil }
func (benchGuard) CheckUDP(netip.AddrPort) error                                      { return nil }

// reportCPU adds the processor's time for one exchange, client and server
// together. Unlike the wall clock's it means something on a busy machine.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

func benchServer(b *testing.B, proto delivery.Protocol) delivery.Endpoint {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "ok")
	})
	config := &tls.Config{Certificates: []tls.Certificate{testCA().issue(originName)}}
	if proto == delivery.ProtocolHTTP3 {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			b.Fatal(err)
		}
		srv := &http3.Server{Handler: handler, TLSConfig: http3.ConfigureTLSConfig(config)}
		go func() { _ = srv.Serve(udp) }()
		b.Cleanup(func() { srv.Close(); udp.Close() })
		return endpoint(portOf(udp.LocalAddr()))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	b.Cleanup(func() { srv.Close() })
	return endpoint(portOf(ln.Addr()))
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, proto := range protocols {
		b.Run(proto.String(), func(b *testing.B) {
			ep := benchServer(b, proto)
			tr, err := New(Config{Guard: benchGuard{}, RootCAs: testCA().pool})
			if err != nil {
				b.Fatal(err)
			}
			defer tr.Close(context.Background())
			want := Want{HTTP3: proto == delivery.ProtocolHTTP3, Alternative: delivery.Alternative{Port: ep.Route.Origin.Port}, TCP: TCPOptions{Protocol: proto}}
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // an attempt has a deadline
			defer cancel()
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				conn, warm := tr.Warm(ep, want)
				if !warm {
					if want.HTTP3 {
						conn, err = tr.DialQUIC(ctx, ep, want.Alternative)
					} else {
						conn, err = tr.DialTCP(ctx, ep, want.TCP)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				resp, err := conn.RoundTrip(ctx, post(ep, benchBody))
				if err != nil || resp.Status != 200 {
					b.Fatal(resp, err)
				}
			}
		})
	}
}

func BenchmarkBareClientConn(b *testing.B) {
	for _, proto := range protocols {
		b.Run(proto.String(), func(b *testing.B) {
			ep := benchServer(b, proto)
			client := bareClient(b, proto, ep)
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				p := post(ep, benchBody)
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://"+p.Host+p.Path, strings.NewReader(benchBody))
				if err != nil {
					b.Fatal(err)
				}
				for _, f := range p.Headers {
					req.Header.Set(f.Name, f.Value)
				}
				resp, err := client.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}

func bareClient(b *testing.B, proto delivery.Protocol, ep delivery.Endpoint) http.RoundTripper {
	config := &tls.Config{RootCAs: testCA().pool, ServerName: originName, MinVersion: tls.VersionTLS12}
	address := netip.AddrPortFrom(loopback, ep.Route.Origin.Port)
	if proto == delivery.ProtocolHTTP3 {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{})
		if err != nil {
			b.Fatal(err)
		}
		config.NextProtos = []string{protoHTTP3}
		tr := &quic.Transport{Conn: udp}
		conn, err := tr.Dial(b.Context(), net.UDPAddrFromAddrPort(address), config, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.CloseWithError(closeCode, ""); tr.Close(); udp.Close() })
		return (&http3.Transport{DisableCompression: true}).NewClientConn(conn)
	}
	tr := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols), DisableCompression: true}
	tr.Protocols.SetHTTP1(proto == delivery.ProtocolHTTP1)
	tr.Protocols.SetHTTP2(proto == delivery.ProtocolHTTP2)
	conn, err := tr.NewClientConn(b.Context(), "https", address.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}
