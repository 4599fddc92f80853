package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrNoAddress is returned, wrapped, when a name resolves to nothing that could
// be dialled without the resolver calling it an error.
var ErrNoAddress = errors.New("host has no address")

// DeniedError says that policy forbids a dial. No socket has been opened.
type DeniedError struct {
	// Host is the name or literal that was asked for; the address itself where
	// only that is known (DialControl, CheckUDP).
	Host string
	// Addr is the address that was denied. It is invalid when the name was
	// refused before any lookup.
	Addr netip.Addr
	// Embedded and Via are set when an IPv4 address inside Addr was denied.
	Embedded netip.Addr
	// Via says in which form Embedded is carried.
	Via Via
	// Rule is what denied it.
	Rule Rule
	// Setting is the setting that would allow it, empty if none can.
	Setting string
	// Literal reports that the verdict follows from the URL alone: a literal
	// address or a refused name. No retry can change it. It is false for an
	// answer of DNS, which is retried.
	Literal bool

	exactly bool
}

// deniedBy turns a verdict that is not Allowed into an error.
func deniedBy(v Verdict, host string, literal bool) *DeniedError {
	return &DeniedError{
		Host: host, Addr: v.Addr, Embedded: v.Embedded, Via: v.Via,
		Rule: v.Rule, Setting: v.Setting, Literal: literal, exactly: v.exactly,
	}
}

// Error names host, address, rule and setting.
func (e *DeniedError) Error() string {
	var b strings.Builder
	b.WriteString("host " + quoteHost(e.Host))
	if e.Addr.IsValid() {
		b.WriteString(": address " + e.Addr.String())
		if e.Embedded.IsValid() {
			fmt.Fprintf(&b, " (%s as %s)", e.Embedded, e.Via)
		}
	}
	fmt.Fprintf(&b, ": denied by policy: rule %s: %s", e.Rule, e.Hint())
	return b.String()
}

// Hint is one sentence on what would allow the address.
func (e *DeniedError) Hint() string {
	addr := e.Addr
	if e.Embedded.IsValid() {
		addr = e.Embedded
	}
	switch {
	case e.Setting == "":
		return "no setting allows it"
	case e.Setting == SettingDenyExtra:
		return "it is in a range listed in " + e.Setting
	case e.Setting == SettingNAT64Prefixes:
		return "decided by the IPv4 address inside once " + e.Setting + " names the prefix"
	case e.exactly && addr.IsValid():
		return fmt.Sprintf("allowed only by %s naming exactly %s/%d", e.Setting, addr, addr.BitLen())
	case addr.IsValid():
		return fmt.Sprintf("would be allowed by %s with a prefix covering %s", e.Setting, addr)
	default:
		return "would be allowed by " + e.Setting
	}
}

// Retryable reports whether a later attempt can come out differently.
func (e *DeniedError) Retryable() bool { return !e.Literal }

// FieldError says which field of a registration is refused, and why. Its fields
// go straight into a problem document's `errors` member.
type FieldError struct {
	// Field is the name of the field, "url".
	Field string
	// Value is the part that is refused (a scheme, a host, a port), or `***`
	// where showing it could show a secret. It is never the whole URL.
	Value string
	// Rule is the rule that refused it.
	Rule Rule
	// Hint says what to do.
	Hint string
	// Err is the *DeniedError for a host or address that policy denies, else
	// nil.
	Err error
}

// Error is safe to log: it contains nothing but the fields.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %s: rule %s: %s", e.Field, e.Value, e.Rule, e.Hint)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// quoteHost makes an untrusted host safe to print: bounded, on one line.
func quoteHost(host string) string {
	const most = 64 // a label's length; enough to recognise a name by
	if len(host) > most {
		host = strings.ToValidUTF8(host[:most], "") + "…"
	}
	return strconv.Quote(host)
}
