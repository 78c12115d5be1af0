package webhook

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// TLS is how the receiver is known, and what the router shows it. Files are read again when they change: what is on its way goes on,
// and the next request has a new connection.
type TLS struct {
	CA         config.Secret `yaml:"ca" doc:"Certificates in PEM of those who may vouch for the receiver, in place of the system's."`
	Cert       config.Secret `yaml:"cert" doc:"Certificate in PEM that the router shows, with those between it and its root."`
	Key        config.Secret `yaml:"key" doc:"Key of cert, in PEM."`
	ServerName string        `yaml:"serverName" doc:"The name that the receiver's certificate must have, if it is not the URL's host."`
}

// Validate implements [config.Validator].
func (t *TLS) Validate(n config.Node) (problems config.Problems) {
	if t.Cert.IsZero() != t.Key.IsZero() {
		problems = append(problems, n.Problemf("has one of cert and key: add the other"))
	}
	for key, s := range map[string]config.Secret{"ca": t.CA, "cert": t.Cert, "key": t.Key} {
		if at := n.At(key); !s.IsZero() && len(at.Keys()) == 0 {
			problems = append(problems, at.Problemf("is read from {file: path} or {env: NAME}, not written here"))
		}
	}
	return problems
}

// material is what a TLS configuration is made of, as it is at one moment.
type material struct{ ca, cert, key string }

func (t *TLS) material() (m material, err error) {
	for _, one := range []struct {
		name string
		from config.Secret
		to   *string
	}{{"ca", t.CA, &m.ca}, {"cert", t.Cert, &m.cert}, {"key", t.Key, &m.key}} {
		if one.from.IsZero() {
			continue
		}
		if *one.to, err = one.from.Value(); err != nil {
			return m, fmt.Errorf("tls.%s: %w", one.name, err)
		}
	}
	return m, nil
}

// config makes the TLS configuration. Its errors quote nothing of the material.
func (t *TLS) config(m material) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if m.ca != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(m.ca)) {
			return nil, errors.New("tls.ca: there is no certificate in PEM")
		}
	}
	if m.cert != "" {
		pair, err := tls.X509KeyPair([]byte(m.cert), []byte(m.key))
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// clients gives the client for the TLS material as it is now.
type clients struct {
	tls     TLS
	connect time.Duration

	mu     sync.Mutex
	of     [sha256.Size]byte // the material that the client was made of
	client *http.Client
}

// get returns the client. One that was made of older material ends its connections once they are idle.
func (c *clients) get() (*http.Client, error) {
	m, err := c.tls.material()
	if err != nil {
		return nil, err
	}
	of := sha256.Sum256([]byte(m.ca + "\x00" + m.cert + "\x00" + m.key))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && of == c.of {
		return c.client, nil
	}
	made, err := c.tls.config(m)
	if err != nil {
		return nil, err
	}
	c.closeIdle()
	c.of, c.client = of, newClient(made, c.connect)
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
