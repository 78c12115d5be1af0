package fetch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
)

const (
	maxBody    = 1 << 20  // bytes, each way
	maxHeaders = 64 << 10 // bytes of a response's
	// MaxRequest is how many bytes a request of a guest has at most.
	MaxRequest = maxBody*2 + maxHeaders
	idleTime   = 90 * time.Second
	maxIdle    = 4
	// complaints about one host come at most once in this time.
	complaintInterval = time.Minute
)

// Client sends the requests of one handler's guests. It is safe for concurrent use.
type Client struct {
	hosts map[string]*Target // by host:port
	log   *slog.Logger
}

// Target is a host that may be asked.
type Target struct {
	Grant

	client  *http.Client
	offline bool // the client sends nothing
	rate    rate

	mu         sync.Mutex
	complained time.Time
}

// New returns a client for the hosts of a configuration. With env.HTTP it sends nothing itself.
func New(hosts []Grant, env plugins.HandlerEnv, clock timer.Clock) *Client {
	c := &Client{hosts: make(map[string]*Target), log: env.Log}
	d := newDialer(env.APIServer)
	for _, host := range hosts {
		c.hosts[host.Address()] = &Target{
			Grant: host, rate: rate{clock: clock, most: host.Rate}, offline: env.HTTP != nil,
			client: &http.Client{
				Transport: transport(d, host, env),
				// A redirect is an answer like others: where it leads nobody allowed.
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
		}
	}
	return c
}

// transport is the way to a host.
func transport(d *dialer, host Grant, env plugins.HandlerEnv) http.RoundTripper {
	if env.HTTP != nil {
		return env.HTTP
	}
	return &http.Transport{
		// No proxy: behind one nobody could check the address. No compression: the limit is about
		// what was sent.
		DialContext:            d.to(host),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: maxHeaders,
	}
}

// Close closes the connections that are idle.
func (c *Client) Close() {
	for _, host := range c.hosts {
		host.client.CloseIdleConnections()
	}
}

// Find reads a request and returns the host that it may be sent to. A status below 0 says why there
// is none.
func (c *Client) Find(text string) (*Request, *Target, int32) {
	r, status := parse(text)
	if status < 0 {
		return nil, nil, status
	}
	host := c.hosts[r.Address()]
	if host == nil || r.url.Scheme != host.Scheme || host.sets(r.headers) || !host.grants(r) {
		return nil, nil, abi.StatusDenied
	}
	return r, host, abi.StatusOK
}

// Do sends a request and returns its answer as the guest reads it, or a status below 0.
func (c *Client) Do(ctx context.Context, host *Target, r *Request) ([]byte, int32) {
	request, err := r.build(ctx, host)
	if err == nil {
		answer, status, failed := host.send(request)
		if err = failed; err == nil {
			return answer, status
		}
	}
	return c.failed(ctx, host, err)
}

// sets reports whether the host sets one of the headers itself.
func (h *Target) sets(headers http.Header) bool {
	for name := range h.Headers {
		if _, ok := headers[http.CanonicalHeaderKey(name)]; ok {
			return true
		}
	}
	return false
}

// build makes the request, with the headers that the guest does not see.
func (r *Request) build(ctx context.Context, host *Target) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	request.Header = r.headers
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "deltarouter")
	}
	if host.offline {
		return request, nil
	}
	for name, secret := range host.Headers {
		value, err := secret.Value()
		if err != nil {
			return nil, err
		}
		request.Header.Set(name, value)
	}
	return request, nil
}

// answer is what the guest reads. One of Body and BodyBase64 is there, unless the body is empty.
type answer struct {
	Status     int               `json:"status"` // 0: there was no answer
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`       // if it is UTF-8
	BodyBase64 string            `json:"bodyBase64,omitempty"` // if it is not
	Error      string            `json:"error,omitempty"`      // why there was no answer
}

func (h *Target) send(request *http.Request) ([]byte, int32, error) {
	response, err := h.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, 0, err
	}
	if len(body) > maxBody {
		return nil, abi.StatusQuota, nil
	}
	shown := answer{Status: response.StatusCode, Headers: make(map[string]string, len(response.Header))}
	for name, values := range response.Header {
		shown.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	if utf8.Valid(body) {
		shown.Body = string(body)
	} else {
		shown.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
	answer, err := json.Marshal(shown)
	return answer, abi.StatusOK, err
}

// failed says what the guest hears of a request that had no answer. It hears the kind of failure
// only: the error may name addresses.
func (c *Client) failed(ctx context.Context, host *Target, err error) ([]byte, int32) {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return nil, abi.StatusTooLate
	}
	if host.mayComplain() {
		c.log.Warn("a request of the handler had no answer", "host", host.Host, "err", plugins.Transport(err))
	}
	if errors.Is(err, errAddress) {
		return nil, abi.StatusDenied
	}
	answer, err := json.Marshal(answer{Error: failure(err)})
	if err != nil {
		return nil, abi.StatusInvalid // not reached
	}
	return answer, abi.StatusOK
}

func (h *Target) mayComplain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.complained) > complaintInterval {
		h.complained = now
		return true
	}
	return false
}

func failure(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "the name of the host cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	}
	return "the connection failed"
}
