package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const (
	// HeaderTimeout is the longest time that an API server allows a request by default.
	HeaderTimeout = 60 * time.Second

	// IdleTimeout is the longest time between two reads of a list.
	IdleTimeout = 30 * time.Second
	// maxJSON is the largest size of an answer in bytes.
	maxJSON = 16 << 20

	// AcceptObjects requests objects.
	AcceptObjects = "application/json"
	// AcceptMetadata requests the metadata of an object, or of the objects of a watch.
	AcceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	// AcceptMetadataList requests the metadata of a list of objects.
	AcceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Client speaks to one API server. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	http  *http.Client
	limit *rate.Limiter // nil: none
}

// New returns a client of the configured kubeconfig and context. If none is configured, it uses the
// first that exists of $KUBECONFIG, the service account of the pod, and ~/.kube/config. It opens no
// connection. A change of the kubeconfig, or of a file that it refers to, is read again, except for
// the address of the server. Credential plugins run as in kubectl if the policy allows them.
func New(cluster config.Cluster, policy config.Policy) (*Client, error) {
	limit := func(cfg *rest.Config) *rest.Config {
		if cfg.QPS = -1; cluster.QPS > 0 {
			cfg.QPS, cfg.Burst = cluster.QPS, max(cluster.Burst, 1)
		}
		return cfg
	}
	return connect(func() (*rest.Config, []string, error) {
		cfg, files, err := restConfig(cluster, policy)
		if err != nil {
			return nil, nil, err
		}
		return limit(cfg), files, nil
	})
}

// For returns a client of a client-go configuration, which it copies.
func For(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	return connect(func() (*rest.Config, []string, error) { return cfg, filesOf(cfg), nil })
}

func connect(load loader) (*Client, error) {
	transport, cfg, err := newCredentials(load)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("the client configuration cannot be used: %w", err)
	}
	// A timeout would end watches; each request has its own.
	c := &Client{base: base, http: &http.Client{Transport: transport}}
	if cfg.QPS > 0 {
		c.limit = rate.NewLimiter(rate.Limit(cfg.QPS), max(cfg.Burst, 1))
	}
	return c, nil
}

// restConfig also returns the files of the configuration.
func restConfig(cluster config.Cluster, policy config.Policy) (cfg *rest.Config, files []string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cluster.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cluster.Context})
	// $KUBECONFIG and the service account of the pod come before ~/.kube/config.
	if cluster.Kubeconfig == "" && cluster.Context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, filesOf(cfg), nil
		}
	}
	cfg, err = loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // client-go's advice is for kubectl
		err = errors.New("there is none, or it is empty: set cluster.kubeconfig or $KUBECONFIG, or run in a pod of the cluster")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("no usable kubeconfig (%s): %w", place(cluster, rules), fileerr.Explain(err))
	}
	if err := policy.Credentials(cfg.ExecProvider != nil, cfg.AuthProvider != nil); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig (%s): %w", place(cluster, rules), err)
	}
	return cfg, append(kubeconfigFiles(rules), filesOf(cfg)...), nil
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

// HTTP returns the HTTP client of the requests, for other packages that use the same API server. It
// must not be modified.
func (c *Client) HTTP() *http.Client { return c.http }

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ErrSlow says that an answer, or the next part of it, took too long.
var ErrSlow = errors.New("the API server did not answer in time")

// Spare reports whether a request now delays no others: the limit of requests is used by half at
// most.
func (c *Client) Spare() bool {
	return c.limit == nil || c.limit.Tokens() > float64(c.limit.Burst())/2
}

// Get sends a GET request and returns the response if its status is 200; any other status becomes
// an *apierrors.StatusError. The caller closes the body. The request and the reads of the body end
// with ctx. idle is the longest time of one read; 0: no limit.
func (c *Client) Get(ctx context.Context, path string, query url.Values, accept string, idle time.Duration) (*http.Response, error) {
	return c.GetWithin(ctx, path, query, accept, HeaderTimeout, idle)
}

// GetWithin is Get with a limit of the time until the answer begins.
func (c *Client) GetWithin(ctx context.Context, path string, query url.Values, accept string, begin, idle time.Duration) (*http.Response, error) {
	if c.limit != nil {
		if err := c.limit.Wait(ctx); err != nil {
			return nil, err
		}
	}
	// The timer is about the time until the answer begins, the body watches over the rest.
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(begin, func() { cancel(ErrSlow) })
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
		if cause := context.Cause(ctx); errors.Is(cause, ErrSlow) {
			c.Close() // the other connections may be dead too
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = NewBody(resp.Body, idle, cancel)
	body, err := decoded(resp.Body, resp.Header.Get("Content-Encoding"))
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = body
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp, nil
}

// Post sends a review object and decodes the answer into it. It creates no object in the cluster.
func (c *Client) Post(ctx context.Context, path string, question any) error {
	if c.limit != nil {
		if err := c.limit.Wait(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, HeaderTimeout, ErrSlow)
	defer cancel()
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A review is answered as if it were created.
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(question); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
