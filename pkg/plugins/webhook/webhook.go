// Package webhook is the sink kind `webhook`: it posts events over HTTP, as CloudEvents or with a body that an expression makes.
//
// 2xx is delivered. 408, 425, 429, 5xx, no answer in time and every error of the connection mean that the receiver is unavailable:
// the events are tried again. Any other answer, redirects included, rejects the event. A URL and headers may be secrets: an error
// names the scheme and the host and no more, and a response's body is never shown, because it may echo the event.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/tlsfiles"
)

const (
	// maxDrain is how much of a response is read so that its connection can be used again.
	maxDrain = 64 << 10
	// maxRetryAfter bounds what a receiver may ask for.
	maxRetryAfter = 24 * time.Hour
	// maxIdle is how many connections to the receiver are kept open while nothing is sent, idleTime for how long.
	maxIdle  = 16
	idleTime = 90 * time.Second
	// keepAlive is how often an open connection is probed, so that a peer that went away is noticed.
	keepAlive = 15 * time.Second
)

type sink struct {
	name     string
	url      config.Secret
	headers  map[string]config.Secret
	encode   func(context.Context, *event.Event) (*message, error) // nil: in batches
	maxBatch config.Size
	timeout  time.Duration
	clients  tlsfiles.Clients
}

func newSink(c Config, env plugins.Env) (*sink, error) {
	s := &sink{
		name: env.Name, url: c.URL, headers: c.Headers, maxBatch: c.MaxBatch, timeout: c.Timeout,
		clients: tlsfiles.Clients{Files: &c.TLS, New: func(t *tls.Config) *http.Client { return newClient(t, c.ConnectTimeout) }},
	}
	switch {
	case c.Body != nil:
		program, err := expr.CompileEvent(c.Body.Text)
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

// Write implements [plugins.Sink]: a request per event, one after the other. Once the receiver is unavailable the rest is not tried,
// so that the events of one object stay in order and a dead receiver costs one timeout rather than one per event.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	if s.encode == nil {
		return s.writeBatches(ctx, events)
	}
	var errs []error
	for i := range events {
		m, err := s.encode(ctx, &events[i])
		if err != nil {
			err = s.named(err)
		} else {
			err = s.post(ctx, m)
		}
		if err == nil {
			continue
		}
		if errs == nil {
			errs = make([]error, len(events))
		}
		errs[i] = err
		if plugins.IsRejected(err) {
			continue
		}
		for k := i + 1; k < len(events); k++ {
			errs[k] = err
		}
		break
	}
	return errs
}

// named says whose error it is.
func (s *sink) named(err error) error { return fmt.Errorf("webhook %q: %w", s.name, err) }

// post sends a request. Its error is made by [plugins.Reject] or means that the receiver is unavailable.
func (s *sink) post(ctx context.Context, m *message) error {
	text, err := s.url.Value()
	if err != nil {
		return s.named(fmt.Errorf("url: %w", err))
	}
	u, err := parseURL(text)
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
	// An error here says nothing about the event: the receiver has answered.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrain))
	return s.judge(u, resp)
}

// request makes the request of a message.
func (s *sink) request(ctx context.Context, u *url.URL, m *message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(m.body))
	if err != nil {
		return nil, errors.New("url: not fit for a request")
	}
	req.Header = m.header
	req.Header.Set("User-Agent", "deltarouter")
	for name, secret := range s.headers {
		value, err := secret.Value()
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// unavailable makes the error of a request that got no answer within the time of the second context. That of net/http quotes the URL, and
// that of a connection that took too long passes for one of a context.
func (s *sink) unavailable(ctx, within context.Context, u *url.URL, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if ctx.Err() == nil && within.Err() != nil {
		return fmt.Errorf("webhook %q: %s://%s: no answer within %v", s.name, u.Scheme, u.Host, s.timeout)
	}
	return fmt.Errorf("webhook %q: %s://%s: %w", s.name, u.Scheme, u.Host, err)
}

// statusError is an answer that is not 2xx.
type statusError struct {
	sink, host string
	status     int
}

// Error is the sink, the host and the status.
func (e *statusError) Error() string {
	text := fmt.Sprintf("webhook %q: %s answered %d %s", e.sink, e.host, e.status, http.StatusText(e.status))
	if e.status >= 300 && e.status < 400 {
		text += ": redirects are not followed, configure where it leads"
	}
	return text
}

// judge says what a status means.
func (s *sink) judge(u *url.URL, resp *http.Response) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	err := &statusError{s.name, u.Scheme + "://" + u.Host, status}
	if status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests || status >= 500 {
		return plugins.RetryLater(err, retryAfter(resp.Header.Get("Retry-After"), time.Now()))
	}
	return plugins.Reject(err)
}

// retryAfter reads the header Retry-After, seconds or a date; 0 if there is none.
func retryAfter(value string, now time.Time) time.Duration {
	after := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		after = date.Sub(now)
	}
	return min(max(after, 0), maxRetryAfter)
}

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error {
	s.clients.Close()
	return nil
}
