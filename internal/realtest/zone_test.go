//go:build real

package realtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is a DNS server without a network: it answers over a pipe, so that every
// packet in a capture is about something else. The system's resolver code and
// our own both ask it.
type zone struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr // by name; of several, one an A query, the last one for ever
	records map[string]httpsRecord
}

// httpsRecord is a name's HTTPS record with alpn=h3.
type httpsRecord struct {
	Target string // "" = the name itself
	Hints  []netip.Addr
}

// dial has the type of net.Resolver.Dial and of protoselect.DNSConfig.Dial.
func (z *zone) dial(_ context.Context, network, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	go z.serve(far, strings.HasPrefix(network, "udp"))
	return near, nil
}

// resolver is the system's, with us behind it. It takes a pipe for a stream.
func (z *zone) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
		return z.dial(ctx, "tcp", address)
	}}
}

// serve answers until the other end has had enough.
func (z *zone) serve(conn net.Conn, datagrams bool) {
	defer conn.Close()
	buf := make([]byte, 4096)
	for {
		var n int
		var err error
		if datagrams {
			n, err = conn.Read(buf)
		} else if _, err = io.ReadFull(conn, buf[:2]); err == nil {
			n, err = io.ReadFull(conn, buf[:min(len(buf), int(binary.BigEndian.Uint16(buf)))])
		}
		if err != nil {
			return
		}
		answer, ok := z.answer(buf[:n])
		if !ok {
			return
		}
		if !datagrams {
			answer = append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func (z *zone) answer(query []byte) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil, false
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
	for _, body := range z.bodies(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: body})
	}
	packed, err := m.Pack()
	return packed, err == nil
}

func (z *zone) bodies(name string, kind dnsmessage.Type) (out []dnsmessage.ResourceBody) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if kind == dnsmessage.TypeHTTPS {
		if r, ok := z.records[name]; ok {
			out = append(out, &dnsmessage.HTTPSResource{SVCBResource: r.resource(name)})
		}
		return out
	}
	list := z.answers[name]
	if len(list) == 0 {
		return nil
	}
	for _, addr := range list[0] {
		switch {
		case kind == dnsmessage.TypeA && addr.Is4():
			out = append(out, &dnsmessage.AResource{A: addr.As4()})
		case kind == dnsmessage.TypeAAAA && addr.Is6():
			out = append(out, &dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	if kind == dnsmessage.TypeA && len(list) > 1 {
		z.answers[name] = list[1:]
	}
	return out
}

func (r httpsRecord) resource(name string) dnsmessage.SVCBResource {
	target := r.Target
	if target == "" {
		target = name
	}
	out := dnsmessage.SVCBResource{
		Priority: 1, Target: dnsmessage.MustNewName(target + "."),
		Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamALPN, Value: []byte("\x02h3")}},
	}
	var v4, v6 []byte
	for _, h := range r.Hints {
		if h.Is4() {
			v4 = append(v4, h.AsSlice()...)
		} else {
			v6 = append(v6, h.AsSlice()...)
		}
	}
	if v4 != nil {
		out.Params = append(out.Params, dnsmessage.SVCParam{Key: dnsmessage.SVCParamIPv4Hint, Value: v4})
	}
	if v6 != nil {
		out.Params = append(out.Params, dnsmessage.SVCParam{Key: dnsmessage.SVCParamIPv6Hint, Value: v6})
	}
	return out
}
