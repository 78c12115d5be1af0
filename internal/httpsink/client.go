// Package httpsink contains the common parts of sinks over HTTP: the client, headers, the probe of
// an address, Retry-After, and the text that is kept of a response.
package httpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// maxIdle is the maximum number of idle connections to the receiver, and idleTime how long they
	// are kept.
	maxIdle  = 16
	idleTime = 90 * time.Second
	// keepAlive is the interval of the probes that detect a dead peer of an open connection.
	keepAlive = 15 * time.Second
	// drainTime bounds how long the body of a response is read. Only the status matters, but a
	// connection can be reused only after its body was read to the end.
	drainTime = time.Second
)

// NewClient returns a client that follows no redirects, because these would send headers, including
// secrets, and events to an address that is not configured. connect bounds the time to connect, and
// separately the TLS handshake; 0: only the context of the request bounds them.
func NewClient(settings *tls.Config, connect time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: connect, KeepAlive: keepAlive}).DialContext,
			TLSClientConfig:     settings,
			TLSHandshakeTimeout: connect,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // responses are short
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			IdleConnTimeout:     idleTime,

			MaxResponseHeaderBytes: MaxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Header reads the values of the configured headers. Its error names the header, never a value.
func Header(configured map[string]config.Secret) (http.Header, error) {
	h := http.Header{}
	for name, secret := range configured {
		value, err := secret.Value()
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		h.Set(name, value)
	}
	return h, nil
}

// Drain reads the body of a refused response, at most [MaxAnswer] bytes, and cancels the request if
// that takes long. whole reports whether text is the complete body.
func Drain(resp *http.Response, cancel context.CancelFunc) (text []byte, whole bool) {
	if resp.ContentLength == 0 { // most receivers say no more than the status
		return nil, true
	}
	enough := time.AfterFunc(drainTime, cancel)
	defer enough.Stop()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	return text, err == nil && len(text) < MaxAnswer
}

// Probe connects to the host of a URL, or of its proxy, and closes the connection. With https it
// makes a TLS handshake with the settings.
func Probe(ctx context.Context, u *url.URL, settings *tls.Config) error {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme], "1080")
	address := net.JoinHostPort(u.Hostname(), port)
	var conn net.Conn
	var err error
	if u.Scheme == "https" {
		conn, err = (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, err)
	}
	return conn.Close()
}

const (
	// MaxHeaders bounds the header of a response, in bytes.
	MaxHeaders = 64 << 10
	// MaxAnswer bounds the part of a response's body that [Said] reads, in bytes.
	MaxAnswer = 4 << 10
	// MaxRetryAfter bounds the delay that a receiver may request.
	MaxRetryAfter = 24 * time.Hour
)

// RetryAfter reads the header Retry-After, seconds or a date. It returns 0 if the header is empty
// or malformed, and at most [MaxRetryAfter].
func RetryAfter(header http.Header, now time.Time) time.Duration {
	value, after := header.Get("Retry-After"), time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		after = date.Sub(now)
	}
	return min(max(after, 0), MaxRetryAfter)
}

// IsConfidential reports whether an event is about a Secret. A response to it may repeat the
// Secret, so no part of that response may be kept.
func IsConfidential(e *event.Event) bool {
	if e.Of == nil {
		return false
	}
	r := e.Of.Object().Resource()
	return r.Group == "" && r.Resource == "secrets"
}
