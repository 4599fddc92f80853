package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is one setting as text, whatever it is in the [Config]. Setting its own
// texts gives the same value, but for an unset one: its text need not be allowed.
type value interface {
	// set replaces the value. Scalars take exactly one text, lists any number, in
	// each of which commas separate.
	set(texts []string) error
	// texts returns the value in its canonical form; one text unless it is a list.
	texts() []string
	// take gives it the value of the same setting in another [Config].
	take(from value)
	isList() bool
	// kind names the type for help.
	kind() string
}

// scalar is a value of one text.
type scalar[T any] struct {
	p      *T
	name   string
	parse  func(string) (T, error)
	format func(T) string
}

func (s scalar[T]) set(texts []string) error {
	if len(texts) != 1 {
		return bad("takes one value, not a list", "write a single value")
	}
	v, err := s.parse(texts[0])
	if err != nil {
		return err
	}
	*s.p = v
	return nil
}

func (s scalar[T]) take(from value) { *s.p = *from.(scalar[T]).p } //nolint:forcetypeassert // the same setting

func (s scalar[T]) texts() []string { return []string{s.format(*s.p)} }
func (scalar[T]) isList() bool      { return false }
func (s scalar[T]) kind() string    { return s.name }

// list is a value of any number of texts.
type list[T any] struct {
	p      *[]T
	name   string
	parse  func(string) (T, error)
	format func(T) string
}

func (l list[T]) set(texts []string) error {
	out := []T{}
	for _, text := range texts {
		for part := range strings.SplitSeq(text, ",") {
			part = strings.TrimSpace(part)
			if part == "" && len(texts) == 1 && text == part {
				continue // an empty text is an empty list
			}
			v, err := l.parse(part)
			if err != nil {
				return about(part, err)
			}
			out = append(out, v)
		}
	}
	*l.p = out
	return nil
}

func (l list[T]) take(from value) { *l.p = slices.Clone(*from.(list[T]).p) } //nolint:forcetypeassert // the same setting

func (l list[T]) texts() []string {
	out := make([]string, len(*l.p))
	for i, v := range *l.p {
		out[i] = l.format(v)
	}
	return out
}

func (list[T]) isList() bool   { return true }
func (l list[T]) kind() string { return l.name }

// Constructors of values, with their bounds.

func textValue(p *string, name string, check func(string) error) value {
	return scalar[string]{p, name, func(s string) (string, error) { return s, check(s) }, same}
}

func same(s string) string { return s }

func anyText(string) error { return nil }

func notEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return bad("must not be empty", "give it a value, or leave it out")
	}
	return nil
}

func boolValue(p *bool) value {
	parse := func(s string) (bool, error) {
		switch strings.ToLower(s) {
		case "true", "on", "yes", "1":
			return true, nil
		case "false", "off", "no", "0":
			return false, nil
		}
		return false, bad("is neither true nor false", "write true or false")
	}
	return scalar[bool]{p, "bool", parse, strconv.FormatBool}
}

func intValue(p *int, low, high int) value {
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, bad("is not a whole number", fmt.Sprintf("write digits only, from %d to %d", low, high))
		}
		return n, within(n, low, high, strconv.Itoa)
	}
	return scalar[int]{p, "int", parse, strconv.Itoa}
}

func sizeValue(p *ByteSize, low, high ByteSize) value {
	parse := func(s string) (ByteSize, error) {
		n, err := parseSize(s)
		if err != nil {
			return 0, err
		}
		return n, within(n, low, high, ByteSize.String)
	}
	return scalar[ByteSize]{p, "size", parse, ByteSize.String}
}

func durationValue(p *time.Duration, low, high time.Duration) value {
	parse := func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		if err != nil {
			return 0, err
		}
		return d, within(d, low, high, formatDuration)
	}
	return scalar[time.Duration]{p, "duration", parse, formatDuration}
}

func floatValue(p *float64, low, high float64, unit string) value {
	format := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) + unit }
	parse := func(s string) (float64, error) {
		f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, unit)), 64)
		if err != nil || f != f {
			return 0, bad("is not a number", fmt.Sprintf("write one from %s to %s", format(low), format(high)))
		}
		return f, within(f, low, high, format)
	}
	return scalar[float64]{p, "number", parse, format}
}

func within[T int | float64 | ByteSize | time.Duration](v, low, high T, format func(T) string) error {
	if v < low || v > high {
		return bad(fmt.Sprintf("must be from %s to %s", format(low), format(high)), "choose a value within these bounds")
	}
	return nil
}

func oneOf(p *string, names ...string) value {
	return textValue(p, strings.Join(names, "|"), func(s string) error {
		if slices.Contains(names, s) {
			return nil
		}
		return bad("is not one of "+strings.Join(names, ", "), "choose one of them")
	})
}

// addressValue is an address to listen on; with optional, "off" is none.
func addressValue(p *string, optional bool) value {
	parse := func(s string) (string, error) {
		if optional && (s == "off" || s == "") {
			return "", nil
		}
		return s, checkListen(s)
	}
	format := func(s string) string {
		if s == "" && optional {
			return "off"
		}
		return s
	}
	return scalar[string]{p, "host:port", parse, format}
}

func prefixList(p *[]netip.Prefix) value {
	return list[netip.Prefix]{p, "CIDR,…", parsePrefix, netip.Prefix.String}
}

// parsePrefix reads a CIDR or a single address. Bits after the length are more
// often a slip for a single address than a wish for the whole network, and the
// slip would open it.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, bad("is not an address range", "write one such as 10.0.0.0/8 or fd00::/8")
	case p.Addr().Is4In6():
		return p, bad("is an IPv4 range in IPv6 form", "write it as IPv4")
	case p != p.Masked():
		return p, bad("has bits after its length", fmt.Sprintf("write %v, or %v for the single address",
			p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen())))
	}
	return p, nil
}

func textList(p *[]string, name string, check func(string) error) value {
	return list[string]{p, name, func(s string) (string, error) { return s, check(s) }, same}
}

func portList(p *[]uint16) value {
	parse := func(s string) (uint16, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return 0, bad("is not a port", "write a number from 1 to 65535")
		}
		return uint16(n), nil
	}
	return list[uint16]{p, "port,…", parse, func(n uint16) string { return strconv.Itoa(int(n)) }}
}

// sourceValue is a local address of one family; empty is the system's choice.
func sourceValue(p *netip.Addr, family string, is func(netip.Addr) bool) value {
	parse := func(s string) (netip.Addr, error) {
		if s == "" {
			return netip.Addr{}, nil
		}
		a, err := netip.ParseAddr(s)
		if err != nil || !is(a) || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return a, bad("is not an "+family+" address of this machine", "write the address alone, without a port or a zone; leave it out for the system's choice")
		}
		return a, nil
	}
	format := func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	return scalar[netip.Addr]{p, "address", parse, format}
}

// serverList is a list of DNS servers; the port defaults to 53.
func serverList(p *[]netip.AddrPort) value {
	parse := func(s string) (netip.AddrPort, error) {
		if a, err := netip.ParseAddr(s); err == nil {
			return netip.AddrPortFrom(a, 53), nil
		}
		ap, err := netip.ParseAddrPort(s)
		if err != nil || ap.Port() == 0 {
			return ap, bad("is not an address of a DNS server", "write an IP address, with a port if that is not 53, such as 192.0.2.1 or [2001:db8::1]:5353")
		}
		return ap, nil
	}
	return list[netip.AddrPort]{p, "address,…", parse, netip.AddrPort.String}
}

func secretValue(p *Secret, check func(string) error) value {
	parse := func(s string) (Secret, error) { return Secret{s}, check(s) }
	return scalar[Secret]{p, "secret", parse, Secret.Reveal}
}

// Secret is a value that is used but never shown.
type Secret struct{ text string }

// NewSecret returns a secret with this text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text, for the one place that needs it.
func (s Secret) Reveal() string { return s.text }

// IsSet reports whether there is a secret at all.
func (s Secret) IsSet() bool { return s.text != "" }

// Format implements [fmt.Formatter]: no verb prints the text.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.mask())) }

// MarshalText implements [encoding.TextMarshaler] with the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.mask()), nil }

const mask = "***"

func (s Secret) mask() string {
	if s.text == "" {
		return ""
	}
	return mask
}

// maskURL returns a URL without what lets somebody in: its userinfo, its path
// and its query.
func maskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return Secret{raw}.mask()
	}
	out := u.Scheme + "://"
	if u.User != nil {
		out += mask + "@"
	}
	out += u.Host
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		out += "/" + mask
	}
	return out
}
