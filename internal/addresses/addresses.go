// Package addresses sorts IP addresses by who may be behind them. Handlers and registries of
// modules name hosts whose addresses others choose; both are bounded by the same table.
package addresses

import (
	"net/netip"
)

// Kind is the kind of an IP address.
type Kind uint8

// The kinds, in the order of the rights that a connection requires.
const (
	Public   Kind = iota // globally reachable
	Private              // of a private network, or of this machine
	Metadata             // link-local, or of the metadata service of a cloud
	Never                // reserved or multicast: no service has it
)

// special are the addresses that are not public: those of IANA's registries of special-purpose
// addresses (IPv4, IPv6: 2025-10) that are not globally reachable, and those of metadata services.
// The first entry that contains an address counts.
func special() []struct {
	prefix string
	kind   Kind
} {
	return []struct {
		prefix string
		kind   Kind
	}{
		{"169.254.0.0/16", Metadata},
		{"100.100.100.200/32", Metadata}, // Alibaba
		{"168.63.129.16/32", Metadata},   // Azure
		{"192.0.0.192/32", Metadata},     // Oracle
		{"fd00:ec2::/32", Metadata},      // Amazon
		{"fd20:ce::254/128", Metadata},   // Google
		{"fd00:42::42/128", Metadata},    // Scaleway
		{"fe80::/10", Metadata},

		{"192.0.0.9/32", Public},
		{"192.0.0.10/32", Public},
		{"0.0.0.0/8", Never},
		{"10.0.0.0/8", Private},
		{"100.64.0.0/10", Private},
		{"127.0.0.0/8", Private},
		{"172.16.0.0/12", Private},
		{"192.0.0.0/24", Private},
		{"192.0.2.0/24", Never},
		{"192.88.99.0/24", Never},
		{"192.168.0.0/16", Private},
		{"198.18.0.0/15", Private},
		{"198.51.100.0/24", Never},
		{"203.0.113.0/24", Never},
		{"224.0.0.0/3", Never}, // multicast and reserved addresses

		{"::1/128", Private},
		{"fc00::/7", Private},
		{"fec0::/10", Private}, // site-local
		{"2001:1::1/128", Public},
		{"2001:1::2/128", Public},
		{"2001:1::3/128", Public},
		{"2001:3::/32", Public},
		{"2001:4:112::/48", Public},
		{"2001:20::/27", Public}, // 2001:20::/28 and 2001:30::/28
		{"2001:db8::/32", Never},
		{"2001::/23", Private},
		{"3fff::/20", Never},
		{"2000::/3", Public},
		{"::/0", Never}, // unallocated addresses
	}
}

// KindOf returns the kind of an address. For an IPv6 address that represents an IPv4 address
// (NAT64, 6to4 and others), it returns the kind of the latter. The zero Addr is of the kind Never.
// It is safe for concurrent use.
func KindOf(a netip.Addr) Kind {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return Never
	}
	if inner, atLeast := embedded(a); inner != nil {
		kind := atLeast
		for _, a := range inner {
			if k := KindOf(a); k > kind && (k == Metadata || atLeast == Public) {
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
	return Public
}

// embedded returns the IPv4 addresses that an IPv6 address may represent, and the minimum kind of
// the result. There may be several candidates. If the minimum is not public, only a candidate of
// the kind metadata changes it.
func embedded(a netip.Addr) (inner []netip.Addr, atLeast Kind) {
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case a.Is4():
	case in(a, "64:ff9b::/96"): // NAT64
		return []netip.Addr{last}, Public
	case in(a, "2002::/16"): // 6to4
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}, Public
	case in(a, "64:ff9b:1::/48"): // NAT64 of a network of its own, with 96 or 48 bits before the address (RFC 6052)
		return []netip.Addr{last, netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]})}, Private
	case in(a, "2001::/32"): // Teredo: the server, and the client inverted
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}, Private
	case in(a, "::ffff:0:0:0/96"), in(a, "::/96") && !a.IsLoopback() && !a.IsUnspecified(): // translated, and IPv4-compatible
		return []netip.Addr{last}, Private
	}
	return nil, Public
}

func in(a netip.Addr, prefix string) bool { return netip.MustParsePrefix(prefix).Contains(a) }
