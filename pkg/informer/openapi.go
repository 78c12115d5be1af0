package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// maxOpenAPI is the largest size of an OpenAPI document in bytes. That of v1 has 1.6 MB; that of a
// custom resource is as large as its schema.
const maxOpenAPI = 64 << 20

// OpenAPI returns the OpenAPI v3 document of a group and version; group "" is the core group. It
// returns nil if the API server does not have the version.
func (c *Client) OpenAPI(ctx context.Context, group, version string) ([]byte, error) {
	path := openAPIPath(group, version)
	resp, err := c.api.Get(ctx, path, nil, client.AcceptObjects, client.IdleTimeout)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxOpenAPI+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxOpenAPI {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, maxOpenAPI)
	}
	return text, nil
}

func openAPIPath(group, version string) string {
	if group == "" {
		return "openapi/v3/api/" + version
	}
	return "openapi/v3/apis/" + group + "/" + version
}

// OpenAPIVersions returns the groups and versions with an OpenAPI v3 document at the API server,
// sorted.
func (c *Client) OpenAPIVersions(ctx context.Context) ([]schema.GroupVersion, error) {
	var root struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := c.api.GetJSON(ctx, "openapi/v3", &root); err != nil {
		return nil, err
	}
	var all []schema.GroupVersion
	for _, path := range slices.Sorted(maps.Keys(root.Paths)) {
		parts := strings.Split(path, "/")
		if len(parts) == 2 && parts[0] == "api" {
			all = append(all, schema.GroupVersion{Version: parts[1]})
		} else if len(parts) == 3 && parts[0] == "apis" {
			all = append(all, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the API server lists no OpenAPI v3 documents")
	}
	return all, nil
}
