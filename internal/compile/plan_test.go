package compile_test

import (
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestHandlerLookups shows that a route waits for the sources of its handler's grants, and counts
// as changed when these change.
func TestHandlerLookups(t *testing.T) {
	r := compile.Route{HandlerGrants: []plugins.LookupGrant{{Source: "pods", Index: "byNode"}, {Source: "nodes"}, {Source: "pods"}}}
	if got := r.Lookups(); !slices.Equal(got, []string{"nodes", "pods"}) {
		t.Errorf("got %q", got)
	}
}
