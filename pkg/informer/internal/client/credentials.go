package client

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
)

// credentialsLook is the interval at which the files of the credentials are checked for changes.
const credentialsLook = 5 * time.Second

// MaxPause returns the longest pause before a request that has failed is repeated, by default most.
// If other credentials may help, it is as long as a change of them takes to be noticed.
func MaxPause(most time.Duration, err error) time.Duration {
	if apierrors.IsUnauthorized(err) || errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.AlertError)) {
		return min(most, credentialsLook)
	}
	return most
}

// loader reads the configuration of a client, and returns the files that it consists of.
type loader func() (cfg *rest.Config, files []string, err error)

// credentials is the round tripper of a Client: it uses the current contents of a kubeconfig and of
// the files that it refers to. client-go rereads some of these files (certificates and the CA after
// five minutes, tokens after one), and never the kubeconfig. Running requests and watches keep the
// credentials that they began with. It is safe for concurrent use.
type credentials struct {
	load  loader
	every time.Duration // between two checks

	mu      sync.Mutex
	looked  time.Time
	files   []string
	of      [sha256.Size]byte // the hash of the files when current was made, or earlier
	host    string
	current http.RoundTripper
	err     error // why the present files are not used; nil: they are
}

// newCredentials also returns the configuration of the first load.
func newCredentials(load loader) (*credentials, *rest.Config, error) {
	c := &credentials{load: load, every: credentialsLook, looked: time.Now()}
	cfg, err := c.make()
	if err != nil {
		return nil, nil, err
	}
	return c, cfg, nil
}

// make builds the transport. On failure the former one stays in use.
func (c *credentials) make() (*rest.Config, error) {
	_, files, err := c.load()
	if err != nil {
		return nil, err
	}
	of := printOf(files)
	cfg, files, err := c.load() // a change of a file after this line has another hash
	if err != nil {
		return nil, err
	}
	if c.host != "" && cfg.Host != c.host {
		return nil, fmt.Errorf("it names another server, %s: restart the router to use that", cfg.Host)
	}
	current, err := transportFor(cfg)
	if err != nil {
		return nil, fileerr.Explain(err)
	}
	if c.current != nil {
		utilnet.CloseIdleConnectionsFor(c.current)
	}
	c.files, c.of, c.host, c.current = files, of, cfg.Host, current
	return cfg, nil
}

// RoundTrip implements http.RoundTripper.
func (c *credentials) RoundTrip(req *http.Request) (*http.Response, error) {
	current, stale := c.get()
	resp, err := current.RoundTrip(req)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (the kubeconfig has changed, and cannot be used: %w)", err, stale)
	}
	return resp, err
}

// CloseIdleConnections implements the interface that http.Client checks for.
func (c *credentials) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(c.current)
}

func (c *credentials) get() (current http.RoundTripper, stale error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= c.every {
		c.err = c.look()
		c.looked = time.Now()
	}
	return c.current, c.err
}

// look builds a new transport if a file has changed. If the files are inconsistent or only half
// written, the former one stays in use.
func (c *credentials) look() error {
	if printOf(c.files) == c.of {
		return nil
	}
	_, err := c.make()
	return err
}

// printOf returns a hash of the present content of the files.
func printOf(files []string) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, name := range files {
		// A missing file counts as empty: the reader of the configuration reports it.
		content, err := os.ReadFile(name)
		inner := sha256.Sum256(content)
		fmt.Fprintf(hash, "%q %v %x\n", name, err == nil, inner)
	}
	hash.Sum(sum[:0])
	return sum
}

// filesOf returns the files that a configuration refers to.
func filesOf(cfg *rest.Config) (files []string) {
	for _, name := range []string{cfg.CAFile, cfg.CertFile, cfg.KeyFile, cfg.BearerTokenFile} {
		if name != "" {
			files = append(files, name)
		}
	}
	return files
}

// kubeconfigFiles returns the files that a kubeconfig is merged from.
func kubeconfigFiles(rules *clientcmd.ClientConfigLoadingRules) []string {
	if rules.ExplicitPath != "" {
		return []string{rules.ExplicitPath}
	}
	return rules.Precedence
}

// transportFor returns the round tripper of a configuration, with its own connections.
func transportFor(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "deltarouter"
	}
	// Decompression costs more CPU than all other work on an object, and watches are never
	// compressed.
	cfg.DisableCompression = true
	return kubehttp.TransportFor(cfg)
}
