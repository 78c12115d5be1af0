package tlsfiles

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"sync"
)

// Clients gives the HTTP client for the files as they are now, also where a proxy stands between:
// TLS with who stands behind it is made by the client, and not by what dials. What is on its way
// when a file changes goes on, and the next request has a new connection. It is safe for concurrent
// use.
type Clients struct {
	Files *Config
	// New makes a client with the given settings, which are its own.
	New func(*tls.Config) *http.Client

	mu     sync.Mutex
	of     [sha256.Size]byte // the print of the files that the client was made of
	client *http.Client
}

// Get returns the client. One that was made of older files ends its connections once they are idle.
// The error is like that of [Config.Load].
func (c *Clients) Get() (*http.Client, error) {
	of, err := c.Files.Print()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && of == c.of {
		return c.client, nil
	}
	// of later files, if they change at this moment: then the next print is another one
	settings, err := c.Files.Load()
	if err != nil {
		return nil, err
	}
	c.closeIdle()
	c.of, c.client = of, c.New(settings)
	return c.client, nil
}

// Close ends the connections. No request is under way.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle()
}

func (c *Clients) closeIdle() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}
