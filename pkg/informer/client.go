package informer

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// Client speaks to one API server. It is safe for concurrent use.
type Client struct {
	api *client.Client
}

// server returns the API client; nil: there is none, see [Watch.Injector].
func (c *Client) server() *client.Client {
	if c == nil {
		return nil
	}
	return c.api
}

// NewClient returns a client of the configured kubeconfig and context. If none is configured, it
// uses the first that exists of $KUBECONFIG, the service account of the pod, and ~/.kube/config. It
// opens no connection. A change of the kubeconfig, or of a file that it refers to, is read again,
// except for the address of the server. Credential plugins run as in kubectl if the policy allows
// them.
func NewClient(cluster config.Cluster, policy config.Policy) (*Client, error) {
	api, err := client.New(cluster, policy)
	if err != nil {
		return nil, err
	}
	return &Client{api}, nil
}

// NewClientFor returns a client of a client-go configuration, which it copies.
func NewClientFor(cfg *rest.Config) (*Client, error) {
	api, err := client.For(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{api}, nil
}

// Host returns the URL of the API server.
func (c *Client) Host() string { return c.api.Host() }

// HTTP returns the HTTP client of the requests, for other packages that use the same API server. It
// must not be modified.
func (c *Client) HTTP() *http.Client { return c.api.HTTP() }

// Close closes connections that are not in use.
func (c *Client) Close() { c.api.Close() }

// Identity returns the uid of the namespace kube-system, which identifies the cluster under any
// address. An error means that the API server does not answer, or does not let the client read that
// namespace.
func (c *Client) Identity(ctx context.Context) (string, error) { return c.api.Identity(ctx) }
