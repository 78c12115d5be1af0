package fetch

import (
	"net/netip"
)

// addressKind is the grant that a connection to an address requires.
type addressKind uint8

const (
	public  addressKind = iota // a name that resolves to it
	private                    // private: true
	// the address itself: link-local addresses, and those of metadata services of clouds
	metadata
	never // no grant suffices
)

// special are the addresses that are not public: those of IANA's registries of special-purpose
// addresses (IPv4, IPv6: 2025-10) that are not globally reachable, and those of metadata services.
// The first entry that contains an address counts.
func special() []struct {
	prefix string
	kind   addressKind
} {
	return []struct {
		prefix string
		kind   addressKind
	}{
		{"169.254.0.0/16", metadata},
		{"100.100.100.200/32", metadata}, // Alibaba
		{"168.63.129.16/32", metadata},   // Azure
		{"192.0.0.192/32", metadata},     // Oracle
		{"fd00:ec2::/32", metadata},      // Amazon
		{"fd20:ce::254/128", metadata},   // Google
		{"fd00:42::42/128", metadata},    // Scaleway
		{"fe80::/10", metadata},

		{"192.0.0.9/32", public},
		{"192.0.0.10/32", public},
		{"0.0.0.0/8", never},
		{"10.0.0.0/8", private},
		{"100.64.0.0/10", private},
		{"127.0.0.0/8", private},
		{"172.16.0.0/12", private},
		{"192.0.0.0/24", private},
		{"192.0.2.0/24", never},
		{"192.88.99.0/24", never},
		{"192.168.0.0/16", private},
		{"198.18.0.0/15", private},
		{"198.51.100.0/24", never},
		{"203.0.113.0/24", never},
		{"224.0.0.0/3", never}, // multicast and reserved addresses

		{"::1/128", private},
		{"fc00::/7", private},
		{"fec0::/10", private}, // site-local
		{"2001:1::1/128", public},
		{"2001:1::2/128", public},
		{"2001:1::3/128", public},
		{"2001:3::/32", public},
		{"2001:4:112::/48", public},
		{"2001:20::/27", public}, // 2001:20::/28 and 2001:30::/28
		{"2001:db8::/32", never},
		{"2001::/23", private},
		{"3fff::/20", never},
		{"2000::/3", public},
		{"::/0", never}, // unallocated addresses
	}
}

// kindOf returns the kind of an address. For an IPv6 address that represents an IPv4 address, it
// returns the kind of the latter.
func kindOf(a netip.Addr) addressKind {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return never
	}
	if inner, atLeast := embedded(a); inner != nil {
		kind := atLeast
		for _, a := range inner {
			if k := kindOf(a); k > kind && (k == metadata || atLeast == public) {
				kind = k
			}
		}
		return kind
	}
	for _, s := range special() {
		if netip.MustParsePrefix(s.prefix).Contains(a) {
			return s.kind
		}
	}
	return public
}

// embedded returns the IPv4 addresses that an IPv6 address may represent, and the minimum kind of
// the result. There may be several candidates. If the minimum is not public, only a candidate of
// the kind metadata changes it.
func embedded(a netip.Addr) (inner []netip.Addr, atLeast addressKind) {
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case a.Is4():
	case in(a, "64:ff9b::/96"): // NAT64
		return []netip.Addr{last}, public
	case in(a, "2002::/16"): // 6to4
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}, public
	case in(a, "64:ff9b:1::/48"): // NAT64 of a network of its own, with 96 or 48 bits before the address (RFC 6052)
		return []netip.Addr{last, netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]})}, private
	case in(a, "2001::/32"): // Teredo: the server, and the client inverted
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}, private
	case in(a, "::ffff:0:0:0/96"), in(a, "::/96") && !a.IsLoopback() && !a.IsUnspecified(): // translated, and IPv4-compatible
		return []netip.Addr{last}, private
	}
	return nil, public
}

func in(a netip.Addr, prefix string) bool { return netip.MustParsePrefix(prefix).Contains(a) }
