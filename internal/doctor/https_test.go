package doctor

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// serveHTTPSRecords answers every question for HTTPS records with "1 HOST alpn=h3".
func serveHTTPSRecords(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if answer, ok := answerHTTPS(buf[:n]); ok {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func answerHTTPS(query []byte) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil, false
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	m.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeHTTPS, Class: dnsmessage.ClassINET, TTL: 300},
		Body: &dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{
			Priority: 1, Target: dnsmessage.MustNewName(host + "."),
			Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamALPN, Value: []byte("\x02h3")}},
		}},
	}}
	packed, err := m.Pack()
	return packed, err == nil
}

func TestHTTPSRecordIsReadAndItsServiceTried(t *testing.T) {
	b := setup(t)
	b.config.Selector.DNS = protoselect.DNSConfig{Servers: []netip.AddrPort{serveHTTPSRecords(t)}}
	r := b.receiver(testnet.Config{HTTP3: true}, testnet.Leaf{})
	got := b.examine()
	b.wants(got, true)
	if s := got.Services; len(s) != 1 || s[0].Source != "https_record" || !s[0].Up {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(got.HTTPSRecord, "1 HTTP/3 endpoint") {
		t.Errorf("%q", got.HTTPSRecord)
	}
	if err := r.CloseUDP(); err != nil {
		t.Fatal(err)
	}
	b.wants(b.examine(), true, "warning http3_timeout")
}
