package informer

import (
	"context"
	"errors"
	"fmt"
)

// identityPath is an object that every cluster has from its beginning to its end.
const identityPath = "/api/v1/namespaces/kube-system"

// Identity returns what tells the cluster from others, whatever its address: the uid of its namespace kube-system. The error says
// that the API server does not answer, or does not let us see that namespace.
func (c *Client) Identity(ctx context.Context) (string, error) {
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := c.getJSON(ctx, identityPath, &namespace); err != nil {
		return "", fmt.Errorf("namespace kube-system: %w", err)
	}
	if namespace.Metadata.UID == "" {
		return "", errors.New("namespace kube-system has no uid")
	}
	return namespace.Metadata.UID, nil
}
