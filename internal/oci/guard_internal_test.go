package oci

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

// TestGuard: a registry makes the router connect to no service that is nearer to the router than
// the registry itself.
func TestGuard(t *testing.T) {
	// Guarantee: registry-hostile
	t.Parallel()
	for _, c := range []struct {
		registry, to string
		allowed      bool
	}{
		{"8.8.8.8", "9.9.9.9", true},
		{"8.8.8.8", "127.0.0.1", false},
		{"8.8.8.8", "::1", false},
		{"8.8.8.8", "::ffff:127.0.0.1", false},
		{"8.8.8.8", "10.0.0.1", false},
		{"8.8.8.8", "169.254.169.254", false},
		{"8.8.8.8", "fe80::1", false},
		{"8.8.8.8", "0.0.0.0", false},
		{"8.8.8.8", "100.64.0.1", false},
		{"8.8.8.8", "100.100.100.200", false},
		{"8.8.8.8", "168.63.129.16", false},
		{"8.8.8.8", "192.0.0.192", false},
		{"8.8.8.8", "198.18.0.1", false},
		{"8.8.8.8", "64:ff9b::a9fe:a9fe", false},
		{"8.8.8.8", "64:ff9b::a00:1", false},
		{"8.8.8.8", "2002:a9fe:a9fe::1", false},
		{"8.8.8.8", "2001:db8::1", false},
		{"8.8.8.8", "64:ff9b::808:808", true},
		{"10.0.0.1", "100.100.100.200", false},
		{"10.0.0.1", "64:ff9b::a9fe:a9fe", false},
		{"100.64.0.1", "100.64.0.2", true},
		{"10.0.0.1", "10.0.0.2", true},
		{"10.0.0.1", "127.0.0.1", false},
		{"10.0.0.1", "169.254.169.254", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "169.254.169.254", false},
	} {
		resolved := map[string]string{"registry:443": c.registry, "storage:443": c.to}
		g := newGuard("registry:443")
		g.connect = func(_ context.Context, address string, check func(netip.AddrPort) error) (net.Conn, error) {
			return nil, check(netip.AddrPortFrom(netip.MustParseAddr(resolved[address]), 443))
		}
		if _, err := g.dial(t.Context(), "tcp", "registry:443"); err != nil {
			t.Errorf("the registry itself at %s: %v", c.registry, err)
		}
		if _, err := g.dial(t.Context(), "tcp", "storage:443"); (err == nil) != c.allowed || err != nil && !errors.Is(err, errAddress) {
			t.Errorf("%s refers to %s: %v", c.registry, c.to, err)
		}
	}
}

// TestRedirect: a redirect does not leave TLS.
func TestRedirect(t *testing.T) {
	// Guarantee: registry-hostile
	t.Parallel()
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"https://registry/v2/", "https://storage/x", true},
		{"https://registry/v2/", "http://storage/x", false},
		{"https://registry/v2/", "http://registry/x", false},
		{"https://registry/v2/", "https://user:password@storage/x", false},
		{"https://registry/v2/", "https://127.0.0.1/x", false},
		{"https://registry/v2/", "ftp://storage/x", false},
		{"http://registry/v2/", "https://storage/x", true},
	} {
		from, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.from, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		to, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := newGuard("registry:443").redirect(to, []*http.Request{from}); (err == nil) != c.allowed {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}
