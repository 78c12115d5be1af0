package host

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

const (
	maxBody    = 1 << 20  // bytes of a request or a response
	maxHeaders = 64 << 10 // bytes of a response
	// maxRequest is the maximum size of a guest's request in bytes.
	maxRequest = maxBody*2 + maxHeaders
	idleTime   = 90 * time.Second
	maxIdle    = 4
	// complaintInterval is the minimum interval between two log lines about one host.
	complaintInterval = time.Minute
)

// fetchClient sends the requests of a handler's guests. It is safe for concurrent use.
type fetchClient struct {
	hosts map[string]*fetchTarget // by host:port
	log   *slog.Logger
}

// fetchTarget is a host that guests may send requests to.
type fetchTarget struct {
	Grant

	client  *http.Client
	offline bool // the client sends nothing
	rate    rate

	mu         sync.Mutex
	complained time.Time
}

// newFetchClient returns a client for the hosts of a configuration. With env.HTTP it sends no
// requests itself.
func newFetchClient(hosts []Grant, env plugins.HandlerEnv, clock timer.Clock) *fetchClient {
	c := &fetchClient{hosts: make(map[string]*fetchTarget), log: env.Log}
	d := newDialer(env.APIServer)
	for _, host := range hosts {
		c.hosts[host.Address()] = &fetchTarget{
			Grant: host, rate: rate{clock: clock, most: host.Rate}, offline: env.HTTP != nil,
			client: &http.Client{
				Transport: transport(d, host, env),
				// A redirect is returned to the guest, because its target may not be granted.
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
		}
	}
	return c
}

// transport returns the transport to a host.
func transport(d *dialer, host Grant, env plugins.HandlerEnv) http.RoundTripper {
	if env.HTTP != nil {
		return env.HTTP
	}
	return &http.Transport{
		// No proxy, because the address behind a proxy cannot be checked. No compression, because
		// the limit concerns the bytes on the network.
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

// Close closes idle connections.
func (c *fetchClient) Close() {
	for _, host := range c.hosts {
		host.client.CloseIdleConnections()
	}
}

// Find parses a request and returns its granted host. A status below 0 is the reason why there is
// none.
func (c *fetchClient) Find(text string) (*fetchRequest, *fetchTarget, int32) {
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

// unreachedError is the error of a request without a response, because a host could not be reached
// or did not answer in time.
type unreachedError struct{ Host, Reason string }

func (e *unreachedError) Error() string { return "no answer from " + e.Host + ": " + e.Reason }

// Do sends a request and returns the response in the encoding for the guest, or a status below 0.
// unreached is nil if the host has answered, or the request is not permitted.
func (c *fetchClient) Do(ctx context.Context, host *fetchTarget, r *fetchRequest) (text []byte, status int32, unreached *unreachedError) {
	request, err := r.build(ctx, host)
	if err == nil {
		answer, status, failed := host.send(request)
		if err = failed; err == nil {
			return answer, status, nil
		}
	}
	return c.failed(ctx, host, err)
}

// sets reports whether the grant of the host sets one of the headers itself.
func (h *fetchTarget) sets(headers http.Header) bool {
	for name := range h.Headers {
		if _, ok := headers[http.CanonicalHeaderKey(name)]; ok {
			return true
		}
	}
	return false
}

// build returns the HTTP request, with the headers that are hidden from the guest.
func (r *fetchRequest) build(ctx context.Context, host *fetchTarget) (*http.Request, error) {
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

// answer is the response in the encoding for the guest. Either Body or BodyBase64 is set, unless
// the body is empty.
type answer struct {
	Status     int               `json:"status"` // 0: there was no response
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`       // if it is UTF-8
	BodyBase64 string            `json:"bodyBase64,omitempty"` // if it is not
	Error      string            `json:"error,omitempty"`      // the reason of a missing response
}

func (h *fetchTarget) send(request *http.Request) ([]byte, int32, error) {
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
	secrets := h.secretsOf(request)
	body = httpsink.Redact(body, secrets)
	shown := answer{Status: response.StatusCode, Headers: make(map[string]string, len(response.Header))}
	for name, values := range response.Header {
		shown.Headers[strings.ToLower(name)] = string(httpsink.Redact([]byte(strings.Join(values, ", ")), secrets))
	}
	if utf8.Valid(body) {
		shown.Body = string(body)
	} else {
		shown.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
	answer, err := json.Marshal(shown)
	return answer, abi.StatusOK, err
}

// shortSecret is the length below which a text is not removed from responses, because it occurs in
// any text, in bytes.
const shortSecret = 8

// secretsOf returns the texts of a request that no guest may see. A server may repeat them, and
// what a guest sees can get into errors, dead letters, its store and events.
func (h *fetchTarget) secretsOf(request *http.Request) []string {
	var values []string
	for name, secret := range h.Headers {
		if !h.offline && (secret.Outside() || confidential(name)) {
			values = append(values, request.Header.Get(name))
		}
	}
	return slices.DeleteFunc(httpsink.Secrets(nil, values), func(text string) bool { return len(text) < shortSecret })
}

// confidential reports whether a header has credentials by its name. Others may have any value in
// the configuration, such as a media type, which responses have for other reasons.
func confidential(header string) bool {
	header = strings.ToLower(header)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "token", "secret", "password"}, func(word string) bool { return strings.Contains(header, word) })
}

// failed returns the answer for a request without a response. It contains only the kind of failure,
// because the error may contain addresses.
func (c *fetchClient) failed(ctx context.Context, host *fetchTarget, err error) ([]byte, int32, *unreachedError) {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return nil, abi.StatusTooLate, &unreachedError{host.Address(), "it did not answer in time"}
	}
	if host.mayComplain() {
		c.log.Warn("a request of the handler had no answer", "host", host.Host, "err", plugins.Transport(err))
	}
	if errors.Is(err, errAddress) {
		return nil, abi.StatusDenied, nil
	}
	unreached := &unreachedError{host.Address(), failure(err)}
	answer, err := json.Marshal(answer{Error: unreached.Reason})
	if err != nil {
		return nil, abi.StatusInvalid, unreached // never happens
	}
	return answer, abi.StatusOK, unreached
}

func (h *fetchTarget) mayComplain() bool {
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
		return "the host name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	}
	return "the connection failed"
}
