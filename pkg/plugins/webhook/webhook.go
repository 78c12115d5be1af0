// Package webhook is the sink kind `webhook`: it posts each event as a CloudEvent over HTTP.
//
// 2xx is delivered. 408, 425, 429, 5xx, no answer in time and every error of the connection mean that the receiver is unavailable:
// the events are tried again. Any other answer, redirects included, rejects the event. A URL and headers may be secrets: an error
// names the scheme and the host and no more, and a response's body is never shown, because it may echo the event.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// maxDrain is how much of a response is read so that its connection can be used again.
	maxDrain = 64 << 10
	// maxRetryAfter bounds what a receiver may ask for.
	maxRetryAfter = 24 * time.Hour
	// maxIdle is how many connections to the receiver are kept open while nothing is sent, idleTime for how long.
	maxIdle  = 16
	idleTime = 90 * time.Second
)

type sink struct {
	name    string
	url     config.Secret
	headers map[string]config.Secret
	mode    func(context.Context) context.Context
	timeout time.Duration
	client  *http.Client
}

func newSink(c Config, env plugins.Env) *sink {
	s := &sink{name: env.Name, url: c.URL, headers: c.Headers, timeout: c.Timeout, mode: binding.WithForceStructured}
	if c.Mode == binary {
		s.mode = binding.WithForceBinary
	}
	s.client = &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			IdleConnTimeout:     idleTime,
			TLSHandshakeTimeout: c.Timeout,
		},
		// A redirect would carry the headers, so the secrets, and the event to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Write implements [plugins.Sink]: a request per event, one after the other. Once the receiver is unavailable the rest is not tried,
// so that the events of one object stay in order and a dead receiver costs one timeout rather than one per event.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	var errs []error
	for i := range events {
		err := s.post(ctx, &events[i])
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

// post delivers one event. Its error is made by [plugins.Reject] or means that the receiver is unavailable.
func (s *sink) post(ctx context.Context, e *event.Event) error {
	text, err := s.url.Value()
	if err != nil {
		return fmt.Errorf("webhook %q: url: %w", s.name, err)
	}
	u, err := parseURL(text)
	if err != nil {
		return fmt.Errorf("webhook %q: url: %w", s.name, err)
	}
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := s.request(within, u, e)
	if err != nil {
		return fmt.Errorf("webhook %q: %w", s.name, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return s.unavailable(ctx, u, err)
	}
	defer resp.Body.Close()
	// An error here says nothing about the event: the receiver has answered.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrain))
	return s.judge(u, resp)
}

// request makes the request of an event.
func (s *sink) request(ctx context.Context, u *url.URL, e *event.Event) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return nil, errors.New("url: not fit for a request")
	}
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
	ce := convert(e)
	if err := ce.Validate(); err != nil {
		return nil, plugins.Reject(fmt.Errorf("event %s is no CloudEvent: %w", e.ID, err))
	}
	if err := cehttp.WriteRequest(s.mode(ctx), binding.ToMessage(ce), req); err != nil {
		return nil, plugins.Reject(fmt.Errorf("event %s: %w", e.ID, err))
	}
	return req, nil
}

// convert makes the event one of the CloudEvents SDK, which knows the formats.
func convert(e *event.Event) *cloudevent.Event {
	ce := cloudevent.New()
	ce.SetID(e.ID)
	ce.SetType(e.Type)
	ce.SetSource(e.Source)
	if !e.Time.IsZero() {
		ce.SetTime(e.Time)
	}
	if e.Subject != "" {
		ce.SetSubject(e.Subject)
	}
	for name, value := range map[string]string{
		"route": e.Route, "k8suid": e.K8sUID, "k8sresourceversion": e.K8sResourceVersion,
	} {
		if value != "" {
			ce.SetExtension(name, value)
		}
	}
	if e.Redelivered {
		ce.SetExtension("redelivered", true)
	}
	if len(e.Data) > 0 {
		// SetData would take bytes for something else than JSON, and write them in base64.
		ce.SetDataContentType(cloudevent.ApplicationJSON)
		ce.DataEncoded = e.Data
	}
	return &ce
}

// unavailable makes the error of a request that got no answer. That of net/http quotes the URL.
func (s *sink) unavailable(ctx context.Context, u *url.URL, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("webhook %q: %s://%s: no answer within %v", s.name, u.Scheme, u.Host, s.timeout)
	}
	return fmt.Errorf("webhook %q: %s://%s: %w", s.name, u.Scheme, u.Host, err)
}

// judge says what a status means.
func (s *sink) judge(u *url.URL, resp *http.Response) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	err := fmt.Errorf("webhook %q: %s://%s answered %d %s", s.name, u.Scheme, u.Host, status, http.StatusText(status))
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return plugins.RetryLater(err, retryAfter(resp.Header.Get("Retry-After"), time.Now()))
	case status >= 300 && status < 400:
		return plugins.Reject(fmt.Errorf("%w: redirects are not followed, configure where it leads", err))
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
	s.client.CloseIdleConnections()
	return nil
}
