package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/internal/addresses"
)

// maxRedirects is the maximum number of redirects of a request. Registries use one, to the storage
// of their blobs.
const maxRedirects = 5

var (
	errRedirect = errors.New("the registry redirects to a place that is not allowed")
	errAddress  = errors.New("the registry refers to an address that is not allowed")
)

// guard bounds the addresses that a registry can make the router connect to: the registry itself
// may be anywhere, because the configuration names it. It is safe for concurrent use.
type guard struct {
	registry string // host:port of the registry
	connect  func(ctx context.Context, address string, check func(netip.AddrPort) error) (net.Conn, error)

	mu      sync.Mutex
	proxies map[string]bool // of the environment, by host:port
	at      netip.Addr      // the address of the registry; invalid: unknown
}

func newGuard(registry string) *guard {
	return &guard{registry: registry, connect: connectTo, proxies: map[string]bool{}}
}

// connectTo opens a connection to an address that check permits, after names were resolved.
func connectTo(ctx context.Context, address string, check func(netip.AddrPort) error) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %s", errAddress, address)
		}
		return check(to)
	}}
	return d.DialContext(ctx, "tcp", address)
}

// proxy is http.Transport.Proxy. The environment of the router names proxies, so they are allowed.
func (g *guard) proxy(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if u != nil {
		g.mu.Lock()
		g.proxies[withPort(u)] = true
		g.mu.Unlock()
	}
	return u, err
}

// dial is http.Transport.DialContext.
func (g *guard) dial(ctx context.Context, _, address string) (net.Conn, error) {
	g.mu.Lock()
	named := address == g.registry
	proxy := g.proxies[address]
	g.mu.Unlock()
	return g.connect(ctx, address, func(to netip.AddrPort) error {
		if named {
			g.mu.Lock()
			g.at = to.Addr().Unmap()
			g.mu.Unlock()
			return nil
		}
		if proxy {
			return nil
		}
		return g.check(to.Addr())
	})
}

// check returns the reason why the registry may not refer to an address: it must not reach services
// that are nearer to the router than the registry itself is.
func (g *guard) check(to netip.Addr) error {
	to = to.Unmap()
	g.mu.Lock()
	at := g.at
	g.mu.Unlock()
	inside := at.IsValid() && addresses.KindOf(at) == addresses.Private
	switch kind := addresses.KindOf(to); {
	case kind == addresses.Never:
		return fmt.Errorf("%w: %s is reserved", errAddress, to)
	case kind == addresses.Metadata:
		return fmt.Errorf("%w: %s is link-local or of the metadata service of a cloud", errAddress, to)
	case to.IsLoopback() && !at.IsLoopback():
		return fmt.Errorf("%w: %s is this machine", errAddress, to)
	case kind == addresses.Private && !inside:
		return fmt.Errorf("%w: %s is in a private network, and the registry is not", errAddress, to)
	}
	return nil
}

// redirect is http.Client.CheckRedirect. Package auth removes the credentials before a redirect to
// another host.
func (g *guard) redirect(req *http.Request, via []*http.Request) error {
	u := req.URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: after %d redirects", errRedirect, maxRedirects)
	case u.Scheme != "https" && (u.Scheme != "http" || via[0].URL.Scheme == "https"):
		return fmt.Errorf("%w: %s://, after https://", errRedirect, u.Scheme)
	case u.User != nil:
		return fmt.Errorf("%w: with a user name", errRedirect)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && withPort(u) != g.registry {
		if err := g.check(ip); err != nil {
			return fmt.Errorf("%w: %w", errRedirect, err)
		}
	}
	return nil
}

// withPort returns the host and port of a URL.
func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// hostOf returns the host of host[:port].
func hostOf(registry string) string {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		return strings.Trim(registry, "[]")
	}
	return host
}
