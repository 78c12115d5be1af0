package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// probe connects to the receiver, or to the proxy before it, and closes the connection: no request is sent. With https the receiver's
// certificate is checked. The secrets are read, too.
func probe(ctx context.Context, node config.Node) error {
	var c Config
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	for name, secret := range c.Headers {
		if _, err := secret.Value(); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for name, secret := range c.Secrets {
		if _, err := secret.Value(); err != nil {
			return fmt.Errorf("secrets.%s: %w", name, err)
		}
	}
	encrypted, err := c.TLS.Load()
	if err != nil {
		return err
	}
	text, err := c.URL.Value()
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	u, err := parseURL(text)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return errors.New("the proxy in the environment is not a URL")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if proxy != nil {
		if err := dial(ctx, proxy, encrypted); err != nil {
			return fmt.Errorf("proxy %s://%s: %w", proxy.Scheme, proxy.Host, err)
		}
		return nil
	}
	if err := dial(ctx, u, encrypted); err != nil {
		return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, err)
	}
	return nil
}

// dial connects to the host of a URL; encrypted is for https.
func dial(ctx context.Context, u *url.URL, encrypted *tls.Config) error {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme], "1080")
	address := net.JoinHostPort(u.Hostname(), port)
	var conn net.Conn
	var err error
	if u.Scheme == "https" {
		conn, err = (&tls.Dialer{Config: encrypted}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return err
	}
	return conn.Close()
}
