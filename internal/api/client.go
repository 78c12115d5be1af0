package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// clientTimeout bounds a request. A retry of many dead letters takes long.
const clientTimeout = 2 * time.Minute

// maxHeaders bounds the headers of an answer.
const maxHeaders = 64 << 10

// Client talks to the control API of a running router. It is safe for concurrent use.
type Client struct {
	addr    string
	base    string
	http    http.Client
	standby *atomic.Pointer[Mirror] // of the last answer
}

// Endpoint is a way to the control API of a router.
type Endpoint struct {
	Name      string // for messages
	URL       string // without a path, as in http://localhost
	Transport http.RoundTripper
}

// Wrapped returns the endpoint with another transport around its own.
func (e Endpoint) Wrapped(wrap func(http.RoundTripper) http.RoundTripper) Endpoint {
	e.Transport = wrap(e.Transport)
	return e
}

// UnreachableError is an error of the transport of an [Endpoint]. Its text is complete: the client
// returns it as it is.
type UnreachableError struct{ Text string }

func (e *UnreachableError) Error() string { return e.Text }

// Local returns the endpoint of an address as in listen.api.
func Local(addr string) Endpoint {
	e := Endpoint{Name: addr, URL: "http://" + addr}
	// No proxy: the router runs on this machine.
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders}
	if path, ok := strings.CutPrefix(addr, UnixPrefix); ok {
		e.URL = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", path)
		}
	}
	e.Transport = transport
	return e
}

// NewClient makes a Client for an address as in listen.api.
func NewClient(addr string) *Client { return NewClientAt(Local(addr)) }

// NewClientAt makes a Client for an endpoint.
func NewClientAt(e Endpoint) *Client {
	return &Client{addr: e.Name, base: e.URL, standby: new(atomic.Pointer[Mirror]), http: http.Client{
		Timeout: clientTimeout, Transport: e.Transport,
		// The transport would add the user's credentials to a request to another host, too.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Letters returns all dead letters of a route (empty: of all routes), page by page.
func (c *Client) Letters(ctx context.Context, route string) ([]Letter, error) {
	var all []Letter
	query := url.Values{"route": {route}, "limit": {strconv.Itoa(maxLimit)}}
	for {
		var p page
		if err := c.call(ctx, http.MethodGet, "/api/v1/deadletters?"+query.Encode(), nil, &p); err != nil {
			return nil, err
		}
		all = append(all, p.Letters...)
		c.standby.Store(p.Standby)
		if p.Next == 0 {
			return all, nil
		}
		query.Set("after", strconv.FormatUint(p.Next, 10))
	}
}

// Letter returns one dead letter with its objects.
func (c *Client) Letter(ctx context.Context, id uint64) (*Letter, error) {
	var letter Letter
	if err := c.call(ctx, http.MethodGet, "/api/v1/deadletters/"+strconv.FormatUint(id, 10), nil, &letter); err != nil {
		return nil, err
	}
	c.standby.Store(letter.Standby)
	return &letter, nil
}

// Retry puts dead letters through their routes again, see [Changer].
func (c *Client) Retry(ctx context.Context, which Selection, current bool) (outcome Outcome, err error) {
	return outcome, c.call(ctx, http.MethodPost, "/api/v1/deadletters/retry", retryBody{which, current}, &outcome)
}

// Drop removes dead letters.
func (c *Client) Drop(ctx context.Context, which Selection) (outcome Outcome, err error) {
	return outcome, c.call(ctx, http.MethodPost, "/api/v1/deadletters/drop", which, &outcome)
}

// Status returns the status of the router.
func (c *Client) Status(ctx context.Context) (status Status, err error) {
	return status, c.call(ctx, http.MethodGet, "/api/v1/status", nil, &status)
}

// call sends a request and decodes the answer.
func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return interrupted("the answer from "+c.addr, err)
	}
	return nil
}

// send sends a request. The caller closes the body of the response, whose status is 200.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("the request: %w", err)
		}
		text = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, text)
	if err != nil {
		return nil, fmt.Errorf("the address %q of the router's API: %w", c.addr, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	var told *UnreachableError
	switch {
	case errors.As(err, &told):
		return nil, told
	case err != nil:
		return nil, fmt.Errorf("the router does not answer at %s: is it running, and is that its listen.api? %w", c.addr, reason(err))
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	if to, err := response.Location(); err == nil {
		return nil, fmt.Errorf("%s redirects to %s://%s, which is not followed, because your credentials would be sent there: "+
			"is there a login proxy before the router's API?", c.addr, to.Scheme, to.Host)
	}
	var p problem
	if err := json.NewDecoder(response.Body).Decode(&p); err != nil || p.Error == "" {
		return nil, fmt.Errorf("%s answers %s: is that the router's listen.api?", c.addr, response.Status)
	}
	return nil, &AnswerError{response.StatusCode, p.Error}
}

// AnswerError is an error with which the router has answered.
type AnswerError struct {
	Status int // of HTTP
	text   string
}

// Error implements error.
func (e *AnswerError) Error() string { return e.text }

// interrupted returns the error of an answer that was not read to its end. before names the answer.
func interrupted(before string, err error) error {
	var told *UnreachableError
	if errors.As(err, &told) {
		return told
	}
	return fmt.Errorf("%s: %w", before, reason(err))
}

// reason returns the reason of an error of a request: the address is known.
func reason(err error) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		return number
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
