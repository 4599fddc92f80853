package signing

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pass is one message on its way through a Signer. Passes are pooled, with
// their buffers, so that signing allocates only what it hands out.
type pass struct {
	signer *Signer
	id     string
	ts     []byte
	runs   []run

	message []byte   // Ed25519: prefix and body, which must be in one piece
	scratch []byte   // prefixes and suffixes on their way into a hash
	raw     [][]byte // signatures of one scheme
	out     []byte   // all header values, one behind the other
	ends    []int    // where in out the value of each field ends
}

// run is one key at work.
type run struct {
	scheme int
	key    *signKey
	mac    *macState // nil for Ed25519
}

var passes = sync.Pool{New: func() any { return new(pass) }}

// maxPooled keeps one large body from being held for ever by the pool.
const maxPooled = 256 << 10

// begin checks id and time, picks the keys valid at now and hashes what comes
// before the body.
func (s *Signer) begin(id string, now time.Time) (*pass, error) {
	if !validID(id) {
		return nil, ErrInvalidID
	}
	unix := now.Unix()
	if unix < 0 {
		return nil, fmt.Errorf("sign %s: time %s is before 1970", id, now.Format(time.RFC3339))
	}
	p := passes.Get().(*pass)
	p.signer, p.id = s, id
	p.ts = strconv.AppendInt(p.ts[:0], unix, 10)
	p.runs, p.message, p.out, p.ends = p.runs[:0], p.message[:0], p.out[:0], p.ends[:0]
	for i, sc := range s.schemes {
		before := len(p.runs)
		for j := range sc.keys {
			k := &sc.keys[j]
			if !k.valid(now) {
				continue
			}
			p.start(i, sc, k)
			if !sc.spec.overlaps() {
				break
			}
		}
		if len(p.runs) == before {
			p.release()
			return nil, fmt.Errorf("sign with %s: %w", sc.scheme, ErrNoActiveSecret)
		}
	}
	return p, nil
}

// start puts key to work on the part before the body. All Ed25519 keys of a
// Signer are of one scheme, so one message serves them.
func (p *pass) start(scheme int, sc *schemeSigner, k *signKey) {
	r := run{scheme: scheme, key: k}
	if k.mac != nil {
		r.mac = k.mac.get()
		p.scratch = appendParts(p.scratch[:0], sc.content.before, p.id, p.ts)
		r.mac.Write(p.scratch)
	} else if len(p.message) == 0 {
		p.message = appendParts(p.message, sc.content.before, p.id, p.ts)
	}
	p.runs = append(p.runs, r)
}

// write hashes a piece of the body.
func (p *pass) write(body []byte) {
	ed := false
	for i := range p.runs {
		if mac := p.runs[i].mac; mac != nil {
			mac.Write(body)
		} else {
			ed = true
		}
	}
	if ed {
		p.message = append(p.message, body...)
	}
}

// values fills out and ends, one value for each planned field.
func (p *pass) values() {
	for _, f := range p.signer.fields {
		switch f.kind {
		case fieldID:
			p.out = append(p.out, p.id...)
		case fieldTimestamp:
			p.out = append(p.out, p.ts...)
		case fieldSignature:
			for i, scheme := range f.schemes {
				if i > 0 {
					p.out = append(p.out, ' ')
				}
				p.sign(scheme)
			}
		}
		p.ends = append(p.ends, len(p.out))
	}
}

// sign appends the signature value of one scheme to out.
func (p *pass) sign(scheme int) {
	sc := p.signer.schemes[scheme]
	p.raw = p.raw[:0]
	for i := range p.runs {
		r := &p.runs[i]
		switch {
		case r.scheme != scheme:
		case r.mac != nil:
			if len(sc.content.after) > 0 {
				p.scratch = appendParts(p.scratch[:0], sc.content.after, p.id, p.ts)
				r.mac.Write(p.scratch)
			}
			p.raw = append(p.raw, r.mac.finish())
		default:
			p.raw = append(p.raw, ed25519.Sign(r.key.priv, p.message))
		}
	}
	p.out = sc.appendSignatures(p.out, p.ts, p.raw)
}

// appendFields finishes p. All values share one string.
func (p *pass) appendFields(dst []Field) []Field {
	p.values()
	all, start := string(p.out), 0
	for i, f := range p.signer.fields {
		dst = append(dst, Field{Name: f.name, Value: all[start:p.ends[i]]})
		start = p.ends[i]
	}
	p.release()
	return dst
}

// setHeaders finishes p. All values share one string and one slice.
func (p *pass) setHeaders(dst http.Header) {
	p.values()
	dropAliases(dst, p.signer.fields)
	all, start := string(p.out), 0
	list := make([]string, len(p.ends))
	for i, f := range p.signer.fields {
		list[i] = all[start:p.ends[i]]
		dst[f.name] = list[i : i+1 : i+1]
		start = p.ends[i]
	}
	p.release()
}

// dropAliases removes keys that are a field's name in another spelling.
// net/http would send them beside the canonical one.
func dropAliases(dst http.Header, fields []field) {
	for name := range dst {
		for i := range fields {
			if f := fields[i].name; len(f) == len(name) && f != name && strings.EqualFold(f, name) {
				delete(dst, name)
			}
		}
	}
}

// release gives the hashes back to their keys and p to the pool.
func (p *pass) release() {
	for i := range p.runs {
		if r := &p.runs[i]; r.mac != nil {
			r.key.mac.put(r.mac)
		}
	}
	clear(p.runs)
	clear(p.raw[:cap(p.raw)])
	p.signer, p.id = nil, ""
	if cap(p.message) > maxPooled {
		p.message = nil
	}
	passes.Put(p)
}

// validID is the rule of ErrInvalidID.
func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '_', c == '~', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

const maxID = 256

// Stream signs a body that comes in pieces. Write it, then call Headers or Append
// once. A Stream that is given up needs no closing.
type Stream struct {
	pass *pass
}

// Stream begins to sign a body that comes in pieces.
func (s *Signer) Stream(id string, now time.Time) (*Stream, error) {
	p, err := s.begin(id, now)
	if err != nil {
		return nil, err
	}
	return &Stream{pass: p}, nil
}

// Write takes the next piece of the body. It fails only after the end.
func (st *Stream) Write(b []byte) (int, error) {
	if st.pass == nil {
		return 0, ErrFinished
	}
	st.pass.write(b)
	return len(b), nil
}

// Append ends the body and appends the header fields to dst, as [Signer.Append]
// does.
func (st *Stream) Append(dst []Field) ([]Field, error) {
	if st.pass == nil {
		return dst, ErrFinished
	}
	dst = st.pass.appendFields(dst)
	st.pass = nil
	return dst, nil
}

// Headers ends the body and sets the header fields in dst, as [Signer.Headers] does.
func (st *Stream) Headers(dst http.Header) error {
	if st.pass == nil {
		return ErrFinished
	}
	st.pass.setHeaders(dst)
	st.pass = nil
	return nil
}
