package netguard

import (
	"encoding/binary"
	"net/netip"
)

// Via names the form in which an IPv6 address carries an IPv4 address. It is
// empty for an address that carries none.
type Via string

// The forms that are unwrapped.
const (
	ViaMapped     Via = "v4_mapped"     // ::ffff:0:0/96 (RFC 4291)
	ViaCompatible Via = "v4_compatible" // ::/96 (RFC 4291, deprecated)
	ViaTranslated Via = "v4_translated" // ::ffff:0:0:0/96 (RFC 2765)
	Via6to4       Via = "6to4"          // 2002::/16 (RFC 3056)
	ViaISATAP     Via = "isatap"        // interface identifier 0:5efe:V4 (RFC 5214)
	ViaNAT64      Via = "nat64"         // a configured RFC 6052 prefix
)

// Both prefixes that RFC 6052 and RFC 8215 set aside for translation. Unlike the
// other forms they lead to the IPv4 address only where a translator stands, so
// they are denied unless the operator says that one does.
var (
	nat64WellKnown = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local     = netip.MustParsePrefix("64:ff9b:1::/48")
)

// carried is an IPv4 address found inside an IPv6 address.
type carried struct {
	addr netip.Addr
	via  Via
	// whole: the form takes up the entire address, so there is nothing left to
	// judge but what it carries. Not so for ISATAP, which is only an interface
	// identifier under somebody's prefix.
	whole bool
}

// structural returns the IPv4 addresses that addr carries by its shape, in the
// array's first n entries; mapped addresses have been unmapped before. A 6to4 address may have an ISATAP interface
// identifier, so there can be two.
func structural(addr netip.Addr) (found [2]carried, n int) {
	b := addr.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	add := func(v4 uint64, via Via, whole bool) {
		found[n] = carried{addr: from4(uint32(v4)), via: via, whole: whole}
		n++
	}
	switch {
	case high == 0 && low <= 1: // :: and ::1 have rules of their own
	case high == 0 && low>>32 == 0:
		add(low, ViaCompatible, true)
	case high == 0 && low>>32 == 0xffff_0000:
		add(low, ViaTranslated, true)
	case high>>48 == 0x2002:
		add(high>>16, Via6to4, true)
	}
	// The two low bits of the first octet are "universal" and "group"; RFC 5214
	// uses 0000:5efe and 0200:5efe, and no stack is trusted to mind the rest.
	if low>>32&^0x0300_0000 == 0x0000_5efe {
		add(low, ViaISATAP, false)
	}
	return found, n
}

// nat64 returns the IPv4 address that addr carries under prefix, as laid out in
// RFC 6052 section 2.2. ok is false when the octet that must be zero is not.
//
//	PL  0-------------32--40--48--56--64--72--80--88--96--104---------
//	32  |     prefix    |v4(32)         | u | suffix                 |
//	40  |     prefix        |v4(24)     | u |(8)| suffix             |
//	48  |     prefix            |v4(16) | u | (16)  | suffix         |
//	56  |     prefix                |(8)| u |  v4(24)   | suffix     |
//	64  |     prefix                    | u |   v4(32)      | suffix |
//	96  |     prefix                                    |    v4(32)  |
func nat64(prefix netip.Prefix, addr netip.Addr) (v4 netip.Addr, ok bool) {
	b := addr.As16()
	if prefix.Bits() == 96 {
		return from4(binary.BigEndian.Uint32(b[12:])), true
	}
	var out [4]byte
	at := prefix.Bits() / 8
	for i := range out {
		if at == 8 { // the u octet is stepped over
			at++
		}
		out[i] = b[at]
		at++
	}
	return netip.AddrFrom4(out), b[8] == 0
}

func from4(v uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}
