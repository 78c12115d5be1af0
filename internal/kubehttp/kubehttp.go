// Package kubehttp makes HTTP transports for API servers, and sends small requests to them.
package kubehttp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// MaxHeaders bounds the header of a response, in bytes. A longer header fails the request. The
// default of Go is 10 MiB.
const MaxHeaders = 64 << 10

const dialTimeout = 10 * time.Second

// TransportFor returns a transport with the credentials of cfg, like [rest.TransportFor], with
// three differences: it has connections of its own, it reads at most [MaxHeaders] bytes of a
// response's header, and it fails on a redirect, see [NoRedirects]. A transport in cfg keeps its
// own bounds. cfg is not modified.
func TransportFor(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Dial == nil {
		// On HTTP/2, pings detect a dead peer. On HTTP/1.1 only TCP keep-alive does.
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4,
		}}
		cfg.Dial = dialer.DialContext // also: client-go shares no transport between two dialers
	}
	bounded := cfg.Transport != nil
	// The first wrapper gets the transport of client-go, before credentials wrap it.
	cfg.WrapTransport = transport.Wrappers(func(made http.RoundTripper) http.RoundTripper {
		bounded = bounded || bound(made)
		return made
	}, cfg.WrapTransport)
	made, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if made == nil || !bounded {
		return nil, errors.New("client: no transport whose responses can be bounded")
	}
	return NoRedirects(made), nil
}

// bound sets the bound if made wraps an HTTP transport that is not the default of the process. The
// wrappers of client-go that reload certificate files stay in place: they clone the transport.
func bound(made http.RoundTripper) bool {
	for {
		switch t := made.(type) {
		case *http.Transport:
			if t == http.DefaultTransport {
				return false
			}
			t.MaxResponseHeaderBytes = MaxHeaders
			return true
		case utilnet.RoundTripperWrapper:
			made = t.WrappedRoundTripper()
		default:
			return false
		}
	}
}
