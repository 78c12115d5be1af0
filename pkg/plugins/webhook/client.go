package webhook

import (
	"crypto/sha256"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/tlsfiles"
)

// clients gives the client for the TLS files as they are now. What is on its way when they change goes on, and the next request has a new
// connection.
type clients struct {
	tls     tlsfiles.Config
	connect time.Duration

	mu     sync.Mutex
	of     [sha256.Size]byte // the print of the files that the client was made of
	client *http.Client
}

// get returns the client. One that was made of older files ends its connections once they are idle.
func (c *clients) get() (*http.Client, error) {
	of, err := c.tls.Print()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && of == c.of {
		return c.client, nil
	}
	settings, err := c.tls.Load() // of later files, if they change at this moment: then the next print is another one
	if err != nil {
		return nil, err
	}
	c.closeIdle()
	c.of, c.client = of, newClient(settings, c.connect)
	return c.client, nil
}

// close ends the connections. No request is under way.
func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle()
}

func (c *clients) closeIdle() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

func newClient(t *tls.Config, connect time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: connect, KeepAlive: keepAlive}).DialContext,
			TLSClientConfig:     t,
			TLSHandshakeTimeout: connect,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // nobody reads the response
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			IdleConnTimeout:     idleTime,
		},
		// A redirect would carry the headers, so the secrets, and the event to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
