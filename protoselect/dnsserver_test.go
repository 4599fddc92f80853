package protoselect

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsZone is a scripted recursive resolver's view: records by name, and how it
// misbehaves.
type dnsZone struct {
	mu      sync.Mutex
	records map[string][]dnsRecord // by lower-case name without the final dot
	rcode   map[string]dnsmessage.RCode
	drop    bool // answers nothing
	tcpOnly bool // truncates every answer over UDP
	garble  func(msg []byte, network string) []byte
	delay   time.Duration
	asked   []string // "udp name" in order
}

type dnsRecord struct {
	ttl   uint32
	cname string
	rdata []byte // of an HTTPS record
}

// zone makes a zone of lines like "h.example 300 1 . alpn=h3 port=8443" or
// "h.example 300 CNAME cdn.example".
func zone(t *testing.T, lines ...string) *dnsZone {
	t.Helper()
	z := &dnsZone{records: map[string][]dnsRecord{}, rcode: map[string]dnsmessage.RCode{}}
	for _, line := range lines {
		f := strings.Fields(line)
		ttl, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil {
			t.Fatalf("zone line %q: %v", line, err)
		}
		rec := dnsRecord{ttl: uint32(ttl)}
		if f[2] == "CNAME" {
			rec.cname = f[3]
		} else {
			rec.rdata = svcbData(t, f[2], f[3], f[4:]...)
		}
		z.records[f[0]] = append(z.records[f[0]], rec)
	}
	return z
}

// svcbData encodes presentation form: priority, target, parameters.
func svcbData(t *testing.T, priority, target string, params ...string) []byte {
	t.Helper()
	n, err := strconv.ParseUint(priority, 10, 16)
	if err != nil {
		t.Fatalf("priority %q: %v", priority, err)
	}
	data := binary.BigEndian.AppendUint16(nil, uint16(n))
	for label := range strings.SplitSeq(strings.Trim(target, "."), ".") {
		if label != "" {
			data = append(append(data, byte(len(label))), label...)
		}
	}
	data = append(data, 0)
	type param struct {
		key   uint16
		value []byte
	}
	var all []param
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		all = append(all, param{svcbKey(t, name), svcbValue(t, name, value)})
	}
	slices.SortFunc(all, func(a, b param) int { return int(a.key) - int(b.key) })
	for _, p := range all {
		data = binary.BigEndian.AppendUint16(data, p.key)
		data = binary.BigEndian.AppendUint16(data, uint16(len(p.value)))
		data = append(data, p.value...)
	}
	return data
}

func svcbKey(t *testing.T, name string) uint16 {
	t.Helper()
	names := []string{"mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint"}
	if i := slices.Index(names, name); i >= 0 {
		return uint16(i)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "key"), 10, 16)
	if err != nil {
		t.Fatalf("key %q", name)
	}
	return uint16(n)
}

func svcbValue(t *testing.T, name, value string) (out []byte) {
	t.Helper()
	switch name {
	case "mandatory":
		for key := range strings.SplitSeq(value, ",") {
			out = binary.BigEndian.AppendUint16(out, svcbKey(t, key))
		}
	case "alpn":
		for id := range strings.SplitSeq(value, ",") {
			out = append(append(out, byte(len(id))), id...)
		}
	case "port":
		n, _ := strconv.ParseUint(value, 10, 16)
		out = binary.BigEndian.AppendUint16(nil, uint16(n))
	case "ipv4hint", "ipv6hint":
		for a := range strings.SplitSeq(value, ",") {
			out = append(out, netip.MustParseAddr(a).AsSlice()...)
		}
	default:
		out = []byte(value)
	}
	return out
}

// answer returns the response to a query, nil = drop it.
func (z *dnsZone) answer(t *testing.T, query []byte, network string) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		t.Errorf("query: %v", err)
		return nil
	}
	q, err := p.Question()
	if err != nil || q.Type != dnsmessage.TypeHTTPS {
		t.Errorf("question %+v: %v", q, err)
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	name := hostOf(q.Name.String())
	z.asked = append(z.asked, network+" "+name)
	if z.drop {
		return nil
	}
	h.Response, h.RecursionAvailable, h.RCode = true, true, z.rcode[name]
	h.Truncated = z.tcpOnly && network == "udp"
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	must(t, b.StartQuestions())
	must(t, b.Question(q))
	must(t, b.StartAnswers())
	if !h.Truncated {
		z.addAnswers(t, &b, name)
	}
	msg, err := b.Finish()
	must(t, err)
	if z.garble != nil {
		msg = z.garble(msg, network)
	}
	return msg
}

func (z *dnsZone) addAnswers(t *testing.T, b *dnsmessage.Builder, name string) {
	for range 12 {
		next := ""
		for _, rec := range z.records[name] {
			h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name + "."), Class: dnsmessage.ClassINET, TTL: rec.ttl}
			if rec.cname != "" {
				must(t, b.CNAMEResource(h, dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(rec.cname + ".")}))
				next = rec.cname
				continue
			}
			h.Type = dnsmessage.TypeHTTPS
			must(t, b.UnknownResource(h, dnsmessage.UnknownResource{Type: dnsmessage.TypeHTTPS, Data: rec.rdata}))
		}
		if next == "" {
			return
		}
		name = next
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// serve runs the zone on a loopback port, UDP and TCP, until the test ends.
func (z *dnsZone) serve(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, ln := listenBoth(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if msg := z.answer(t, buf[:n], "udp"); msg != nil {
				_, _ = pc.WriteTo(msg, from)
			}
		}
	})
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { z.serveStream(t, conn) })
		}
	})
	t.Cleanup(func() {
		pc.Close()
		ln.Close()
		wg.Wait()
	})
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// listenBoth takes a port that is free for UDP and for TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if pc, err := net.ListenPacket("udp", ln.Addr().String()); err == nil {
			return pc, ln
		}
		ln.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func (z *dnsZone) serveStream(t *testing.T, conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	if msg := z.answer(t, query, "tcp"); msg != nil {
		_, _ = conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(msg))))
		_, _ = conn.Write(msg)
	}
}

// config points lookups at the zone over in-memory pipes, for virtual time.
func (z *dnsZone) config(t *testing.T) DNSConfig {
	return DNSConfig{
		Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")},
		Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				buf := make([]byte, 2048)
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				if msg := z.answer(t, buf[:n], network); msg != nil {
					_ = server.SetReadDeadline(time.Now().Add(z.delay))
					if _, err := server.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
						_, _ = server.Write(msg)
					}
					return
				}
				_, _ = server.Read(buf) // until the client gives up
			}()
			return client, nil
		},
	}
}

func (z *dnsZone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}
