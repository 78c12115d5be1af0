package informer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/deltarouter/deltarouter/pkg/config"
)

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 60 * time.Second // as long as an API server lets a request take
	idleTimeout   = 30 * time.Second // between two reads of a list
)

// Client speaks to one API server. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	http  *http.Client
	limit flowcontrol.RateLimiter // nil: none
}

// NewClient makes a client of the configured kubeconfig and context; where none is configured, $KUBECONFIG, the service account of
// the pod, or ~/.kube/config, whichever there is first. It connects to nothing. Tokens and certificates are read again when they
// change, and credential plugins are run as kubectl runs them.
func NewClient(cluster config.Cluster) (*Client, error) {
	cfg, err := restConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if cluster.QPS > 0 {
		cfg.QPS, cfg.Burst = cluster.QPS, max(cluster.Burst, 1)
	} else {
		cfg.QPS = -1
	}
	return NewClientFor(cfg)
}

// NewClientFor makes a client of a client-go configuration, of which it keeps a copy.
func NewClientFor(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "deltarouter"
	}
	// Unpacking costs more CPU than everything else that is done with an object, and watches are never packed.
	cfg.DisableCompression = true
	if cfg.Dial == nil {
		// On HTTP/2 pings find out that the other side is gone, on HTTP/1.1 only TCP does; see also Config.Silence.
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4,
		}}
		cfg.Dial = dialer.DialContext
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	httpClient.Timeout = 0 // it would end watches; each request has its own
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &Client{base: base, http: httpClient}
	if cfg.QPS > 0 {
		c.limit = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, max(cfg.Burst, 1))
	}
	return c, nil
}

func restConfig(cluster config.Cluster) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cluster.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cluster.Context})
	// $KUBECONFIG and the service account of the pod come before ~/.kube/config.
	if cluster.Kubeconfig == "" && cluster.Context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no usable kubeconfig (%s): %w", place(cluster, rules), err)
	}
	return cfg, nil
}

func place(cluster config.Cluster, rules *clientcmd.ClientConfigLoadingRules) string {
	where := cluster.Kubeconfig
	if where == "" {
		where = strings.Join(rules.Precedence, ", ")
	}
	if cluster.Context != "" {
		where += ", context " + cluster.Context
	}
	return where
}

// Host returns the URL of the API server.
func (c *Client) Host() string { return c.base.String() }

// HTTP returns the client that requests go through, for those who speak to the same API server. It must not be modified.
func (c *Client) HTTP() *http.Client { return c.http }

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

var errSlow = errors.New("the API server did not answer in time")

// get sends a GET request and returns the response once its status is 200; any other status becomes an *apierrors.StatusError.
// The body must be closed. Neither waits longer than ctx; idle is how long a read of the body may take, 0: for ever.
func (c *Client) get(ctx context.Context, path string, query url.Values, accept string, idle time.Duration) (*http.Response, error) {
	if c.limit != nil {
		if err := c.limit.Wait(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(headerTimeout, func() { cancel(errSlow) })
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	timer.Stop()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errSlow) {
			c.Close() // the other connections may be as dead as this one
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = newBody(resp.Body, idle, cancel)
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp, nil
}
