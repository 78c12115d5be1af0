package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/addresses"
)

// errAddress is wrapped by the error of a connection to a forbidden address.
var errAddress = errors.New("the address is not allowed")

// dialTimeout is the maximum time of a connection attempt, independent of the call.
const dialTimeout = 10 * time.Second

// dialer connects guests to hosts. It resolves names itself and connects to the addresses that it
// has checked, so a second resolution cannot change the address. It is safe for concurrent use.
type dialer struct {
	resolve   func(ctx context.Context, host string) ([]netip.Addr, error)
	connect   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	apiServer string // host:port; empty: unknown

	mu        sync.Mutex
	apiServed []netip.AddrPort // its last known addresses
}

func newDialer(apiServer string) *dialer {
	return &dialer{
		apiServer: apiServer,
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to.String())
		},
	}
}

// to returns a dial function for the host only.
func (d *dialer) to(host Grant) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		name, port, err := splitHostPort(address)
		if err != nil {
			return nil, err
		}
		if literal, err := netip.ParseAddr(name); err == nil {
			// The configuration contains the address itself, which is sufficient.
			if addresses.KindOf(literal) == addresses.Never {
				return nil, fmt.Errorf("%w: %s", errAddress, literal)
			}
			return d.connect(ctx, netip.AddrPortFrom(literal.Unmap(), port))
		}
		resolved, err := d.resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		return d.first(ctx, resolved, port, host)
	}
}

func splitHostPort(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := net.LookupPort("tcp", text)
	if err != nil || n < 1 || n > 65535 {
		return "", 0, fmt.Errorf("port %q is no port", text)
	}
	return host, uint16(n), nil
}

// first connects to the first allowed address that answers.
func (d *dialer) first(ctx context.Context, candidates []netip.Addr, port uint16, host Grant) (net.Conn, error) {
	err := errors.New("the host has no address")
	for i, a := range candidates {
		to := netip.AddrPortFrom(a.Unmap(), port)
		if denied := d.deny(ctx, to, host); denied != nil {
			err = denied
			continue
		}
		var conn net.Conn
		if conn, err = d.try(ctx, to, len(candidates)-i); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// try connects to an address, and leaves time for the remaining ones.
func (d *dialer) try(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/time.Duration(left))
		defer cancel()
	}
	return d.connect(ctx, to)
}

// deny returns an error if the address of a name is forbidden.
func (d *dialer) deny(ctx context.Context, to netip.AddrPort, host Grant) error {
	switch addresses.KindOf(to.Addr()) {
	case addresses.Never, addresses.Metadata:
		return fmt.Errorf("%w: %s is at %s, which the grant must name", errAddress, host.Host, to.Addr())
	case addresses.Private:
		if !host.Private {
			return fmt.Errorf("%w: %s is at %s, which requires private: true", errAddress, host.Host, to.Addr())
		}
	case addresses.Public:
	}
	if d.apiServer == "" || strings.EqualFold(host.Address(), d.apiServer) {
		return nil
	}
	if is, err := d.isAPIServer(ctx, to); err != nil {
		return fmt.Errorf("whether %s is the API server is not known: %w", host.Host, err)
	} else if is {
		return fmt.Errorf("%w: %s is the API server", errAddress, host.Host)
	}
	return nil
}

// isAPIServer reports whether the API server has the address, or had it at the last successful
// resolution.
func (d *dialer) isAPIServer(ctx context.Context, to netip.AddrPort) (bool, error) {
	name, port, err := splitHostPort(d.apiServer)
	if err != nil {
		return false, err
	}
	if literal, err := netip.ParseAddr(name); err == nil {
		return netip.AddrPortFrom(literal.Unmap(), port) == to, nil
	}
	resolved, err := d.resolve(ctx, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.apiServed = d.apiServed[:0]
		for _, a := range resolved {
			d.apiServed = append(d.apiServed, netip.AddrPortFrom(a.Unmap(), port))
		}
	}
	if len(d.apiServed) == 0 {
		return false, err
	}
	return slices.Contains(d.apiServed, to), nil
}
