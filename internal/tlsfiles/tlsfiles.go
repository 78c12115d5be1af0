// Package tlsfiles is the TLS configuration of a sink: the certificate authorities for the server,
// and the certificate of the router. A sink puts [Config] below its key `tls` and calls
// [Config.Load] for each connection, or uses [Clients] for HTTP, so that certificates that are
// renewed while the router runs are used without a reload. [Server] does the same for a listener.
package tlsfiles

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Config is the configuration below `tls:`. Its zero value means the certificate authorities of the
// system and no certificate of the router.
type Config config.TLS

// Validate implements [config.Validator]. It does not read files, because they can change before
// they are used.
func (c *Config) Validate(n config.Node) (problems config.Problems) {
	if c.Cert.IsZero() != c.Key.IsZero() {
		problems = append(problems, n.Problemf("needs both cert and key, or neither"))
	}
	for _, one := range c.all() {
		at := n.At(one.key)
		if one.value.IsZero() || len(at.Keys()) > 0 { // it is in a file or a variable
			continue
		}
		if text, err := one.value.Value(); err == nil && !strings.Contains(text, "-----BEGIN ") {
			problems = append(problems, at.Problemf("is no PEM: write {file: path} to read it from a file"))
		}
	}
	return problems
}

// secret is a value below `tls:`.
type secret struct {
	key   string
	value config.Secret
}

func (c *Config) all() [3]secret { return [3]secret{{"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}} }

// Print returns a hash of the present content of the files. Its error is like that of
// [Config.Load].
func (c *Config) Print() (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	for _, one := range c.all() {
		text := ""
		if !one.value.IsZero() {
			if text, err = one.value.Value(); err != nil {
				return sum, fmt.Errorf("tls.%s: %w", one.key, err)
			}
		}
		hash.Write([]byte(text + "\x00"))
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// IsZero reports whether TLS is not configured.
func (c *Config) IsZero() bool { return *c == Config{} }

// Load reads the files, unchanged ones from memory, and returns the settings of one connection,
// which the caller owns. The error names the key, and the file if there is one, never a content.
func (c *Config) Load() (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	var err error
	if settings.RootCAs, err = c.Roots(); err != nil {
		return nil, err
	}
	if c.Cert.IsZero() {
		return settings, nil
	}
	own, err := c.Own()
	if err != nil {
		return nil, err
	}
	settings.Certificates = []tls.Certificate{own}
	return settings, nil
}

// Roots returns the certificate authorities for the server; nil: those of the system. Its error is
// like that of [Config.Load].
func (c *Config) Roots() (*x509.CertPool, error) {
	if c.CA.IsZero() {
		return nil, nil
	}
	text, err := c.CA.Value()
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("tls.ca: no PEM certificate found")
	}
	return pool, nil
}

// Own returns the certificate of the router, the zero value if none is configured. Its error is
// like that of [Config.Load].
func (c *Config) Own() (tls.Certificate, error) {
	if c.Cert.IsZero() {
		return tls.Certificate{}, nil
	}
	cert, err := c.Cert.Value()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.cert: %w", err)
	}
	key, err := c.Key.Value()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.key: %w", err)
	}
	own, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		// The error of crypto/tls describes the cause and never quotes the input.
		return tls.Certificate{}, fmt.Errorf("tls.cert and tls.key: %w", err)
	}
	return own, nil
}
