package wasm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

const (
	maxBody        = 1 << 20  // bytes, each way
	maxHeaders     = 64 << 10 // bytes of a response's
	maxHTTPRequest = maxBody*2 + maxHeaders
	idleTime       = 90 * time.Second
	maxIdle        = 4
	// complaints about one host come at most once in this time.
	complaintInterval = time.Minute
)

// httpClient sends the requests of one handler's guests. It is safe for concurrent use.
type httpClient struct {
	hosts map[string]*httpHost // by host:port
	log   *slog.Logger
}

// httpHost is a host that may be asked.
type httpHost struct {
	HTTPHost

	client *http.Client
	clock  timer.Clock

	mu         sync.Mutex
	tokens     float64 // requests that may be sent now
	counted    time.Time
	complained time.Time
}

func newHTTPClient(hosts []HTTPHost, env plugins.Env, clock timer.Clock) *httpClient {
	c := &httpClient{hosts: make(map[string]*httpHost), log: env.Log}
	d := newDialer(env.APIServer)
	for _, host := range hosts {
		c.hosts[host.address()] = &httpHost{
			HTTPHost: host, tokens: float64(host.Rate), clock: clock, counted: clock.Now(),
			client: &http.Client{
				Transport: &http.Transport{
					// No proxy: behind one nobody could check the address. No compression: the limit is about what was sent.
					DialContext:            d.to(host),
					ForceAttemptHTTP2:      true,
					DisableCompression:     true,
					MaxIdleConns:           maxIdle,
					MaxIdleConnsPerHost:    maxIdle,
					IdleConnTimeout:        idleTime,
					TLSHandshakeTimeout:    dialTimeout,
					MaxResponseHeaderBytes: maxHeaders,
				},
				// A redirect is an answer like others: where it leads nobody allowed.
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
		}
	}
	return c
}

func (c *httpClient) close() {
	for _, host := range c.hosts {
		host.client.CloseIdleConnections()
	}
}

// allow takes a request off the host's rate.
func (h *httpHost) allow() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	h.tokens = min(float64(h.Rate), h.tokens+now.Sub(h.counted).Seconds()*float64(h.Rate))
	h.counted = now
	if h.tokens < 1 {
		return false
	}
	h.tokens--
	return true
}

// hostHTTP is http(request, size, buf, limit).
func hostHTTP(ctx context.Context, c *hostCall) int64 {
	size := c.u32(1)
	if size > maxHTTPRequest {
		return statusQuota
	}
	text, ok := c.memory.Read(c.u32(0), size)
	if !ok {
		return statusInvalid
	}
	c.charge(httpFuel + parseFuel(int(size)))
	ctx, cancel := context.WithDeadline(ctx, c.scope.deadline)
	defer cancel()
	return int64(c.scope.reply(c, "http", text, c.u32(2), c.u32(3), func() ([]byte, int32) {
		answer, status := c.scope.rights.http.do(ctx, string(text))
		if status >= 0 {
			c.charge(sendFuel + parseFuel(len(answer)))
		}
		return answer, status
	}))
}

// do sends the request that a guest wrote.
func (c *httpClient) do(ctx context.Context, text string) ([]byte, int32) {
	r, status := parseHTTP(text)
	if status < 0 {
		return nil, status
	}
	host := c.hosts[r.address()]
	if host == nil || r.url.Scheme != host.Scheme || host.sets(r.headers) {
		return nil, statusDenied
	}
	if ctx.Err() != nil {
		return nil, statusTooLate
	}
	if !host.allow() {
		return nil, statusQuota
	}
	request, err := r.build(ctx, host)
	if err == nil {
		var answer []byte
		if answer, status, err = host.send(request); err == nil {
			return answer, status
		}
	}
	return c.failed(ctx, host, err)
}

// sets reports whether the host sets one of the headers itself.
func (h *httpHost) sets(headers http.Header) bool {
	for name := range h.Headers {
		if _, ok := headers[http.CanonicalHeaderKey(name)]; ok {
			return true
		}
	}
	return false
}

// build makes the request, with the headers that the guest does not see.
func (r *httpRequest) build(ctx context.Context, host *httpHost) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	request.Header = r.headers
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "deltarouter")
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

// httpResponse is what the guest reads. One of Body and BodyBase64 is there, unless the body is empty.
type httpResponse struct {
	Status     int               `json:"status"` // 0: there was no answer
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`       // if it is UTF-8
	BodyBase64 string            `json:"bodyBase64,omitempty"` // if it is not
	Error      string            `json:"error,omitempty"`      // why there was no answer
}

func (h *httpHost) send(request *http.Request) ([]byte, int32, error) {
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
		return nil, statusQuota, nil
	}
	shown := httpResponse{Status: response.StatusCode, Headers: make(map[string]string, len(response.Header))}
	for name, values := range response.Header {
		shown.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	if utf8.Valid(body) {
		shown.Body = string(body)
	} else {
		shown.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
	answer, err := json.Marshal(shown)
	return answer, statusOK, err
}

// failed says what the guest hears of a request that had no answer. It hears the kind of failure only: the error may name addresses.
func (c *httpClient) failed(ctx context.Context, host *httpHost, err error) ([]byte, int32) {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return nil, statusTooLate
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // without the URL, which may hold a secret
	}
	if host.mayComplain() {
		c.log.Warn("a request of the handler had no answer", "host", host.Host, "err", err)
	}
	if errors.Is(err, errAddress) {
		return nil, statusDenied
	}
	answer, err := json.Marshal(httpResponse{Error: failure(err)})
	if err != nil {
		return nil, statusInvalid // not reached
	}
	return answer, statusOK
}

func (h *httpHost) mayComplain() bool {
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
