// Package httpsink has what sinks over HTTP share: the client, headers, the probe of an address,
// Retry-After, and what may be kept of a response's body.
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
	// maxIdle is how many connections to the receiver are kept open while nothing is sent, idleTime
	// for how long.
	maxIdle  = 16
	idleTime = 90 * time.Second
	// keepAlive is how often an open connection is probed, so that a peer that went away is
	// noticed.
	keepAlive = 15 * time.Second
	// drainTime bounds how long the body of a response is read. The status decides; a body that was
	// read to its end leaves a connection that can be used again.
	drainTime = time.Second
)

// NewClient returns a client that follows no redirects: they would carry headers, so secrets, and
// events to a place that nobody configured. connect bounds the time to connect, and again the time
// to agree on TLS; 0: only the request's context does.
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

// Drain reads the body of a response that was refused, [MaxAnswer] bytes at most, and ends the
// request by cancel when that takes long. whole says that text is all of it.
func Drain(resp *http.Response, cancel context.CancelFunc) (text []byte, whole bool) {
	enough := time.AfterFunc(drainTime, cancel)
	defer enough.Stop()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	return text, err == nil && len(text) < MaxAnswer
}

// Probe connects to the host of a URL, or to the proxy that it is of, and closes the connection.
// With https it agrees on TLS by the settings.
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
	// MaxAnswer bounds the part of a response's body from which [Said] takes its text, in bytes.
	MaxAnswer = 4 << 10
	// MaxRetryAfter bounds what a receiver may ask for.
	MaxRetryAfter = 24 * time.Hour
)

// RetryAfter reads the header Retry-After, seconds or a date. It returns 0 if the header is empty
// or malformed, and [MaxRetryAfter] at most.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	value, after := header.Get("Retry-After"), time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		after = date.Sub(now)
	}
	return min(max(after, 0), MaxRetryAfter)
}

// IsConfidential reports whether an event is about a Secret. A response to it may echo the Secret,
// so no part of that response may be kept.
func IsConfidential(e *event.Event) bool {
	if e.Of == nil {
		return false
	}
	r := e.Of.Object().Resource()
	return r.Group == "" && r.Resource == "secrets"
}
