// Package webhook is the sink kind `webhook`: it posts events over HTTP, as CloudEvents or with a
// body of an expression.
//
//   - 2xx: the events are delivered.
//   - 401, 403, 407, 408, 425, 429, 5xx, a timeout, an error of the connection: the receiver is
//     unavailable, and the events are retried.
//   - Any other status, redirects included: the event is rejected.
//   - The keys unavailable and rejected change the meaning of a status.
//
// The URL and headers may be secrets, so errors name the scheme and the host only. The body of a
// response may repeat the event: its beginning is kept in the dead letter, without the secrets of
// the request, and not shown elsewhere.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/inorder"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

type sink struct {
	name     string
	url      config.Secret
	parsed   atomic.Pointer[address] // the last one
	headers  map[string]config.Secret
	secrets  map[string]config.Secret                              // of the body
	encode   func(context.Context, *event.Event) (*message, error) // nil: the mode is batched
	maxBatch config.Size
	timeout  time.Duration
	codes    httpsink.Codes
	clients  tlsfiles.Clients
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	s := &sink{
		name: env.Name, url: c.URL, headers: c.Headers, secrets: c.Secrets, maxBatch: c.MaxBatch, timeout: c.Timeout, codes: c.codes(),
		clients: tlsfiles.Clients{Files: &c.TLS, New: func(t *tls.Config) *http.Client { return httpsink.NewClient(t, c.ConnectTimeout) }},
	}
	switch {
	case c.Body != nil:
		program, err := cel.CompileEvent(c.Body.Text)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		s.encode = (&body{program, c.Secrets, c.ContentType}).encode
	case c.Mode == binary:
		s.encode = encodeBinary
	case c.Mode == structured:
		s.encode = encodeStructured
	}
	return s, nil
}

// Write implements [plugins.Sink]. It sends one request per event, one after the other. After the
// receiver is unavailable, it does not send the rest: so the events of an object stay in order, and
// a dead receiver costs one timeout and not one per event.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	if s.encode == nil {
		return s.writeBatches(ctx, events)
	}
	return inorder.Each(events, func(e *event.Event) error {
		m, err := s.encode(ctx, e)
		if err != nil {
			return s.named(err)
		}
		if e.TraceParent != "" {
			m.header.Set("Traceparent", e.TraceParent)
		}
		return s.post(ctx, m, httpsink.IsConfidential(e))
	})
}

// named adds the name of the sink to an error.
func (s *sink) named(err error) error { return fmt.Errorf("webhook %q: %w", s.name, err) }

// post sends a request. Its error is one of [plugins.Reject], or means that the receiver is
// unavailable. confidential: the response may repeat a Secret, so nothing of it is kept.
func (s *sink) post(ctx context.Context, m *message, confidential bool) error {
	text, err := s.url.Value()
	if err != nil {
		return s.named(fmt.Errorf("url: %w", err))
	}
	u, err := s.parse(text)
	if err != nil {
		return s.named(fmt.Errorf("url: %w", err))
	}
	client, err := s.clients.Get()
	if err != nil {
		return s.named(err)
	}
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := s.request(within, u, m)
	if err != nil {
		return s.named(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return s.unavailable(ctx, within, u, err)
	}
	defer resp.Body.Close()
	body, whole := httpsink.Drain(resp, cancel)
	err = s.judge(u, resp)
	if plugins.ClassOf(err) == plugins.Rejected && !confidential && len(body) > 0 {
		return plugins.WithResponse(err, httpsink.Excerpt(body, whole, s.secretsOf(text, req)))
	}
	return err
}

// address is the configured URL, as text and parsed. It is not changed.
type address struct {
	text string
	url  *url.URL
}

// parse parses the URL, which may be that of another secret than before.
func (s *sink) parse(text string) (*url.URL, error) {
	if last := s.parsed.Load(); last != nil && last.text == text {
		return last.url, nil
	}
	u, err := parseURL(text)
	if err == nil {
		s.parsed.Store(&address{text, u})
	}
	return u, err
}

// secretsOf returns the texts of a request that a dead letter must not contain: the URL, and the
// secret values of the headers and the body.
func (s *sink) secretsOf(address string, r *http.Request) []string {
	headers, more := make([]string, 0, len(s.headers)), []string{address}
	for name := range s.headers {
		headers = append(headers, r.Header.Get(name))
	}
	for _, secret := range s.secrets {
		if value, err := secret.Value(); err == nil {
			more = append(more, value)
		}
	}
	return httpsink.Secrets(r.URL, headers, more...)
}

// request returns the HTTP request of a message.
func (s *sink) request(ctx context.Context, u *url.URL, m *message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	headers, err := httpsink.Header(s.headers)
	if err != nil {
		return nil, err
	}
	req.URL, req.Header, req.Host = u, m.header, headers.Get("Host")
	req.Header.Set("User-Agent", "deltarouter")
	headers.Del("Host")
	maps.Copy(req.Header, headers)
	return req, nil
}

// unavailable returns the error of a request that got no response before the context within was
// done. It replaces the text of net/http, which quotes the URL and the receiver's data, and which
// does not tell a connection timeout from the end of a context.
func (s *sink) unavailable(ctx, within context.Context, u *url.URL, err error) error {
	if ctx.Err() == nil && within.Err() != nil {
		return plugins.Categorize(fmt.Errorf("webhook %q: %s://%s: no answer within %v", s.name, u.Scheme, u.Host, s.timeout), "no answer in time")
	}
	return fmt.Errorf("webhook %q: %s://%s: %w", s.name, u.Scheme, u.Host, plugins.Transport(err))
}

// statusError is a response that is not 2xx.
type statusError struct {
	sink, host string
	status     int
	redirected string // see [httpsink.Redirected]
}

// Error returns the sink, the host and the status.
func (e *statusError) Error() string {
	return fmt.Sprintf("webhook %q: %s %s%s", e.sink, e.host, httpsink.Answered(e.status), e.redirected)
}

// judge converts a status to an error.
func (s *sink) judge(u *url.URL, resp *http.Response) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	err := plugins.Categorize(&statusError{s.name, u.Scheme + "://" + u.Host, status, httpsink.Redirected(resp)}, httpsink.Answered(status))
	if s.codes.IsUnavailable(status, httpsink.IsTemporary(status) || status >= 500) {
		return plugins.RetryLater(err, httpsink.RetryAfter(resp.Header, time.Now()))
	}
	return plugins.Reject(err)
}

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error {
	s.clients.Close()
	return nil
}

// Probe implements [plugins.Prober]. It connects to the receiver or to its proxy, and closes the
// connection without a request. With https it verifies the receiver's certificate. It also reads
// the secrets.
func (kind) Probe(ctx context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	if _, err := httpsink.Header(c.Headers); err != nil {
		return err
	}
	for name, secret := range c.Secrets {
		if _, err := secret.Value(); err != nil {
			return fmt.Errorf("secrets.%s: %w", name, err)
		}
	}
	encrypted, err := c.TLS.Load()
	if err != nil {
		return err
	}
	text, err := c.URL.Value()
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	u, err := parseURL(text)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return errors.New("the proxy in the environment is not a URL")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if proxy != nil {
		if err := httpsink.Probe(ctx, proxy, encrypted); err != nil {
			return fmt.Errorf("proxy %w", err)
		}
		return nil
	}
	return httpsink.Probe(ctx, u, encrypted)
}
