package protoselect

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// HTTPSRecord is a usable HTTP/3 endpoint out of an origin's HTTPS records.
type HTTPSRecord struct {
	Priority uint16
	Host     string // "" = the origin's own
	Port     uint16
	Hints    []netip.Addr // only until real answers come
}

// svcb is a parsed HTTPS record before selection.
type svcb struct {
	owner    string
	priority uint16 // 0 = AliasMode
	target   string // "." = owner; without the trailing dot otherwise
	alpn     []string
	port     uint16 // 0 = absent
	hints    []netip.Addr
	// skip says why a well-formed ServiceMode record cannot be used.
	skip string
}

// Bounds of one record set. More records or hints than any operator publishes
// are an attempt to make us work.
const (
	maxRecords = 64
	maxHints   = 8
)

// errMalformed makes the whole record set unusable (RFC 9460 §2.2).
var errMalformed = errors.New("malformed HTTPS record")

// parseSVCB reads one HTTPS record's data. SvcParamKeys are in strictly
// increasing order: dnsmessage refuses anything else.
func parseSVCB(owner string, res *dnsmessage.SVCBResource) (svcb, error) {
	rec := svcb{owner: owner, priority: res.Priority, target: hostOf(res.Target.String())}
	if res.Priority == 0 {
		return rec, nil // AliasMode: parameters are ignored (§2.4.2)
	}
	var mandatory []uint16
	noDefault := false
	for _, p := range res.Params {
		var err error
		switch p.Key {
		case dnsmessage.SVCParamMandatory:
			mandatory, err = parseMandatory(p.Value)
		case dnsmessage.SVCParamALPN:
			rec.alpn, err = parseALPN(p.Value)
		case dnsmessage.SVCParamNoDefaultALPN:
			noDefault = true
			err = exactly(p.Value, 0, "no-default-alpn")
		case dnsmessage.SVCParamPort:
			if err = exactly(p.Value, 2, "port"); err == nil {
				rec.port = binary.BigEndian.Uint16(p.Value)
				if rec.port == 0 {
					rec.skip = "port 0"
				}
			}
		case dnsmessage.SVCParamIPv4Hint:
			rec.hints, err = parseHints(rec.hints, p.Value, 4)
		case dnsmessage.SVCParamIPv6Hint:
			rec.hints, err = parseHints(rec.hints, p.Value, 16)
		}
		if err != nil {
			return svcb{}, err
		}
	}
	if noDefault && rec.alpn == nil {
		rec.skip = "no-default-alpn without alpn" // self-inconsistent (§2.4.3)
	}
	for _, key := range mandatory {
		if _, ok := res.GetParam(dnsmessage.SVCParamKey(key)); !ok {
			return svcb{}, fmt.Errorf("%w: mandatory key %d is absent", errMalformed, key)
		}
		if !understood(key) {
			rec.skip = fmt.Sprintf("mandatory key %d is not understood", key)
		}
	}
	return rec, nil
}

// understood lists the keys whose meaning we act on. ECH is not among them: a
// record that insists on it is not for us.
func understood(key uint16) bool {
	switch dnsmessage.SVCParamKey(key) {
	case dnsmessage.SVCParamALPN, dnsmessage.SVCParamNoDefaultALPN, dnsmessage.SVCParamPort,
		dnsmessage.SVCParamIPv4Hint, dnsmessage.SVCParamIPv6Hint:
		return true
	}
	return false
}

func exactly(v []byte, n int, what string) error {
	if len(v) != n {
		return fmt.Errorf("%w: %s has %d bytes", errMalformed, what, len(v))
	}
	return nil
}

// parseMandatory reads §8: at least one key, ascending, never "mandatory".
func parseMandatory(v []byte) ([]uint16, error) {
	if len(v) == 0 || len(v)%2 != 0 {
		return nil, fmt.Errorf("%w: mandatory has %d bytes", errMalformed, len(v))
	}
	var keys []uint16
	for ; len(v) > 0; v = v[2:] {
		key := binary.BigEndian.Uint16(v)
		if key == 0 || (len(keys) > 0 && key <= keys[len(keys)-1]) {
			return nil, fmt.Errorf("%w: mandatory keys out of order", errMalformed)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// parseALPN reads §7.1.1: a non-empty list of non-empty, length-prefixed names.
func parseALPN(v []byte) ([]string, error) {
	if len(v) == 0 {
		return nil, fmt.Errorf("%w: empty alpn", errMalformed)
	}
	var names []string
	for len(v) > 0 {
		n := int(v[0])
		if n == 0 || n > len(v)-1 {
			return nil, fmt.Errorf("%w: alpn of %d bytes", errMalformed, n)
		}
		names = append(names, string(v[1:1+n]))
		v = v[1+n:]
	}
	return names, nil
}

func parseHints(hints []netip.Addr, v []byte, size int) ([]netip.Addr, error) {
	if len(v) == 0 || len(v)%size != 0 {
		return nil, fmt.Errorf("%w: address hint of %d bytes", errMalformed, len(v))
	}
	for ; len(v) > 0 && len(hints) < maxHints; v = v[size:] {
		a, _ := netip.AddrFromSlice(v[:size])
		hints = append(hints, a)
	}
	return hints, nil
}

// selectH3 picks the HTTP/3 endpoints of a ServiceMode record set, by priority;
// ties keep the order of port, host, so that the choice never depends on the
// order of an answer. aliases are names that the origin's own address lookup
// leads through (its CNAME chain): a target among them is the origin itself.
func selectH3(o delivery.Origin, records []svcb, aliases []string) []HTTPSRecord {
	var out []HTTPSRecord
	for _, rec := range records {
		if rec.skip != "" || !slices.Contains(rec.alpn, "h3") {
			continue
		}
		host := rec.target
		if host == "" {
			host = rec.owner // "." stands for the owner name (§2.5.2)
		}
		if host == o.Host || slices.Contains(aliases, host) {
			host = ""
		}
		out = append(out, HTTPSRecord{
			Priority: rec.priority, Host: host, Port: cmp.Or(rec.port, o.Port), Hints: rec.hints,
		})
	}
	slices.SortStableFunc(out, func(a, b HTTPSRecord) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Host, b.Host))
	})
	return out
}

// hostOf turns a name of the wire into a host: lower case, no trailing dot; the
// root is "".
func hostOf(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// recordName is where an origin's HTTPS records are (RFC 9460 §9.1): the host
// itself for port 443, else a name with port and scheme before it.
func recordName(o delivery.Origin) string {
	if o.Port == 443 {
		return o.Host
	}
	return fmt.Sprintf("_%d._https.%s", o.Port, o.Host)
}
