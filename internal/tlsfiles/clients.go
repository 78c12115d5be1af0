package tlsfiles

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"sync"
)

// Clients returns an HTTP client for the present content of the files. The client itself makes the
// TLS connections, so this works through proxies, too. When a file changes, requests in progress
// continue, and the next request uses a new connection. It is safe for concurrent use.
type Clients struct {
	Files *Config
	// New returns a client with the given settings, which it owns.
	New func(*tls.Config) *http.Client

	mu     sync.Mutex
	of     [sha256.Size]byte // the hash of the files of the client
	client *http.Client
}

// Get returns the client. A client for older files closes its connections once they are idle. The
// error is like that of [Config.Load].
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
	// If the files change at this moment, Load reads the later ones, and the next print differs.
	settings, err := c.Files.Load()
	if err != nil {
		return nil, err
	}
	c.closeIdle()
	c.of, c.client = of, c.New(settings)
	return c.client, nil
}

// Close closes the connections. No request may be in progress.
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
