package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// identityPath is an object that exists as long as the cluster.
const identityPath = "/api/v1/namespaces/kube-system"

// identityTimeout is the time limit of one request: other watches wait for its answer.
const identityTimeout = 15 * time.Second

var errNoIdentity = errors.New("namespace kube-system has no uid")

// Identity returns the uid of the namespace kube-system, which identifies the cluster under any
// address. An error means that the API server does not answer, or does not let the client read that
// namespace.
func (c *Client) Identity(ctx context.Context) (string, error) {
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := c.GetJSON(ctx, identityPath, &namespace); err != nil {
		return "", fmt.Errorf("namespace kube-system: %w", err)
	}
	if namespace.Metadata.UID == "" {
		return "", errNoIdentity
	}
	return namespace.Metadata.UID, nil
}

// IdentityCache requests the identity of the cluster for all watches. Concurrent calls share one
// answer.
type IdentityCache struct {
	client *Client
	log    *slog.Logger
	turn   chan struct{} // held during a request; guards the fields below
	asked  time.Time     // the time of the last request
	answer string
	err    error
	silent bool // a warning was logged that the API server refuses the identity
}

// NewIdentityCache returns an empty cache.
func NewIdentityCache(client *Client, log *slog.Logger) *IdentityCache {
	return &IdentityCache{client: client, log: log, turn: make(chan struct{}, 1)}
}

// Identity returns [Client.Identity] from an answer that is not older than maxAge. It is empty if
// the API server answers but refuses the identity. An error is temporary.
func (c *IdentityCache) Identity(ctx context.Context, maxAge time.Duration) (string, error) {
	since := time.Now().Add(-maxAge)
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.turn }()
	if c.asked.After(since) {
		return c.answer, c.err
	}
	// The age counts from the question: the answer may be as old as that.
	asked := time.Now()
	patient, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	answer, err := c.client.Identity(patient)
	if ctx.Err() != nil {
		return "", ctx.Err() // the next holder of the turn makes its own request
	}
	if apierrors.IsForbidden(err) || IsAnswer(err) || errors.Is(err, errNoIdentity) {
		if !c.silent {
			c.log.Warn("the API server does not give the uid of namespace kube-system; it is taken for the same cluster as before", "err", err)
		}
		c.silent, err = true, nil
	}
	c.asked, c.answer, c.err = asked, answer, err
	return c.answer, c.err
}
