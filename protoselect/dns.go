package protoselect

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver asks configured recursive resolvers for HTTPS records: one EDNS
// query over UDP, over TCP when the answer is truncated (RFC 7766).
//
// The id is random and so is the source port (a connected socket per query).
// Mixed-case names (0x20) are not used: some resolvers do not echo the case,
// and all that a forged answer can do is to suggest a port that policy allows
// on a host whose certificate is verified for the origin.
type resolver struct {
	servers  []netip.AddrPort
	timeout  time.Duration
	attempts int
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
}

// udpPayload is the EDNS buffer size that avoids fragmentation (DNS flag day
// 2020); maxMessage bounds what is read over TCP.
const (
	udpPayload = 1232
	maxMessage = 1<<16 - 1
)

// Errors of a lookup. Each means "no record, for a short while".
var (
	errServer   = errors.New("resolver failed")
	errNoAnswer = errors.New("no usable answer")
)

// answer is a response as far as it matters here.
type answer struct {
	records []svcb
	chain   []string // names that CNAMEs led through, the last one owns records
	ttl     uint32   // least of everything used; without records that of nothing
	found   bool     // there are records
}

// query asks the servers in turn until one gives an answer.
func (r *resolver) query(ctx context.Context, name string) (answer, error) {
	q, id, err := buildQuery(name)
	if err != nil {
		return answer{}, err
	}
	var last error
	for range r.attempts {
		for _, server := range r.servers {
			msg, err := r.ask(ctx, server, q, id)
			if err == nil {
				return readAnswer(msg, name)
			}
			if ctx.Err() != nil {
				return answer{}, fmt.Errorf("query %s: %w", name, context.Cause(ctx))
			}
			last = err
		}
	}
	return answer{}, fmt.Errorf("query %s: %w", name, last)
}

// ask puts the query to one server.
func (r *resolver) ask(ctx context.Context, server netip.AddrPort, q []byte, id uint16) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	msg, err := r.exchange(ctx, "udp", server, q, id)
	if err == nil && truncated(msg) {
		msg, err = r.exchange(ctx, "tcp", server, q, id)
	}
	if err != nil {
		return nil, err
	}
	switch code := dnsmessage.RCode(msg[3] & 0xf); code {
	case dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError:
		return msg, nil
	default:
		return nil, fmt.Errorf("%w: %v", errServer, code)
	}
}

func (r *resolver) exchange(ctx context.Context, network string, server netip.AddrPort, q []byte, id uint16) ([]byte, error) {
	conn, err := r.dial(ctx, network, server.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s resolver: %w", network, err)
	}
	defer conn.Close()
	// The end of the context ends the I/O as well, whatever the deadline says.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		return exchangeStream(conn, q, id)
	}
	return exchangeDatagram(conn, q, id)
}

// exchangeDatagram reads until the answer to our question comes: what does not
// match is somebody's guess or a late answer, and no reason to give up.
func exchangeDatagram(conn net.Conn, q []byte, id uint16) ([]byte, error) {
	if _, err := conn.Write(q); err != nil {
		return nil, fmt.Errorf("write query: %w", err)
	}
	buf := make([]byte, udpPayload)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		if matches(buf[:n], q, id) {
			return buf[:n], nil
		}
	}
}

func exchangeStream(conn net.Conn, q []byte, id uint16) ([]byte, error) {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(q)), uint16(len(q))) //nolint:gosec // a query is short
	if _, err := conn.Write(append(framed, q...)); err != nil {
		return nil, fmt.Errorf("write query: %w", err)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	msg := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, msg); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if !matches(msg, q, id) {
		return nil, fmt.Errorf("%w: it does not answer the question", errNoAnswer)
	}
	return msg, nil
}

// buildQuery makes an EDNS query for the HTTPS records of a host.
func buildQuery(host string) (q []byte, id uint16, err error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, 0, fmt.Errorf("query %q: %w", host, err)
	}
	var random [2]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	id = binary.BigEndian.Uint16(random[:])
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), dnsmessage.Header{ID: id, RecursionDesired: true})
	var opt dnsmessage.ResourceHeader
	err = errors.Join(
		b.StartQuestions(),
		b.Question(dnsmessage.Question{Name: name, Type: dnsmessage.TypeHTTPS, Class: dnsmessage.ClassINET}),
		b.StartAdditionals(),
		opt.SetEDNS0(udpPayload, dnsmessage.RCodeSuccess, false),
		b.OPTResource(opt, dnsmessage.OPTResource{}),
	)
	if err != nil {
		return nil, 0, fmt.Errorf("query %q: %w", host, err)
	}
	q, err = b.Finish()
	if err != nil {
		return nil, 0, fmt.Errorf("query %q: %w", host, err)
	}
	return q, id, nil
}

const dnsHeader = 12

// matches reports whether msg is a response to the query q.
func matches(msg, q []byte, id uint16) bool {
	if len(msg) < dnsHeader || binary.BigEndian.Uint16(msg) != id || msg[2]&0x80 == 0 {
		return false
	}
	got, err := question(msg)
	if err != nil {
		return false
	}
	want, err := question(q)
	return err == nil && got.Type == want.Type && got.Class == want.Class &&
		strings.EqualFold(got.Name.String(), want.Name.String())
}

func question(msg []byte) (dnsmessage.Question, error) {
	var p dnsmessage.Parser
	if _, err := p.Start(msg); err != nil {
		return dnsmessage.Question{}, err
	}
	q, err := p.Question()
	if err != nil {
		return dnsmessage.Question{}, err
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return dnsmessage.Question{}, errNoAnswer
	}
	return q, nil
}

func truncated(msg []byte) bool { return msg[2]&0x02 != 0 }

// readAnswer follows the CNAMEs of the answer section from name and collects
// the HTTPS records at their end. A record set with a malformed record is
// refused as a whole (RFC 9460 §2.2).
func readAnswer(msg []byte, name string) (answer, error) {
	aliases, sets, err := readSection(msg)
	if err != nil {
		return answer{}, fmt.Errorf("answer for %s: %w", name, err)
	}
	a := answer{ttl: ^uint32(0)}
	for range maxAliases {
		target, ok := aliases[name]
		if !ok {
			break
		}
		a.ttl = min(a.ttl, target.ttl)
		name = target.name
		a.chain = append(a.chain, name)
	}
	set, ok := sets[name]
	if !ok {
		return a, nil
	}
	if set.err != nil {
		return answer{}, set.err
	}
	a.records, a.found = set.records, true
	a.ttl = min(a.ttl, set.ttl)
	return a, nil
}

type cname struct {
	name string
	ttl  uint32
}

type recordSet struct {
	records []svcb
	ttl     uint32
	err     error
}

// readSection reads the answer section into CNAMEs and HTTPS record sets by
// owner.
func readSection(msg []byte) (map[string]cname, map[string]*recordSet, error) {
	var p dnsmessage.Parser
	if _, err := p.Start(msg); err != nil {
		return nil, nil, err
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, nil, err
	}
	aliases, sets := map[string]cname{}, map[string]*recordSet{}
	for range maxRecords {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return aliases, sets, nil
		}
		if err != nil {
			return nil, nil, err
		}
		owner := hostOf(h.Name.String())
		switch {
		case h.Class == dnsmessage.ClassINET && h.Type == dnsmessage.TypeCNAME:
			res, err := p.CNAMEResource()
			if err != nil {
				return nil, nil, err
			}
			aliases[owner] = cname{hostOf(res.CNAME.String()), h.TTL}
		case h.Class == dnsmessage.ClassINET && h.Type == dnsmessage.TypeHTTPS:
			res, err := p.HTTPSResource()
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", errMalformed, err)
			}
			addRecord(sets, owner, h.TTL, &res.SVCBResource)
		default:
			if err := p.SkipAnswer(); err != nil {
				return nil, nil, err
			}
		}
	}
	return nil, nil, fmt.Errorf("%w: more than %d records", errNoAnswer, maxRecords)
}

func addRecord(sets map[string]*recordSet, owner string, ttl uint32, res *dnsmessage.SVCBResource) {
	set := sets[owner]
	if set == nil {
		set = &recordSet{ttl: ttl}
		sets[owner] = set
	}
	set.ttl = min(set.ttl, ttl)
	rec, err := parseSVCB(owner, res)
	if err != nil {
		set.err = err
		return
	}
	set.records = append(set.records, rec)
}
