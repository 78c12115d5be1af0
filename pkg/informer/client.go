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

// server returns the client of requests; nil: there is none, see [Watch.Injector].
func (c *Client) server() *client.Client {
	if c == nil {
		return nil
	}
	return c.api
}

// NewClient makes a client of the configured kubeconfig and context; where none is configured,
// $KUBECONFIG, the service account of the pod, or ~/.kube/config, whichever there is first. It
// connects to nothing. The kubeconfig, and what it names, is read again when it changes, but for
// the address of the server, and credential plugins are run as kubectl runs them if the policy
// allows that.
func NewClient(cluster config.Cluster, policy config.Policy) (*Client, error) {
	api, err := client.New(cluster, policy)
	if err != nil {
		return nil, err
	}
	return &Client{api}, nil
}

// NewClientFor makes a client of a client-go configuration, of which it keeps a copy.
func NewClientFor(cfg *rest.Config) (*Client, error) {
	api, err := client.For(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{api}, nil
}

// Host returns the URL of the API server.
func (c *Client) Host() string { return c.api.Host() }

// HTTP returns the client that requests go through, for those who speak to the same API server. It
// must not be modified.
func (c *Client) HTTP() *http.Client { return c.api.HTTP() }

// Close closes connections that are not in use.
func (c *Client) Close() { c.api.Close() }

// Identity returns what tells the cluster from others, whatever its address: the uid of its
// namespace kube-system. The error says that the API server does not answer, or does not let us see
// that namespace.
func (c *Client) Identity(ctx context.Context) (string, error) { return c.api.Identity(ctx) }
