package inspect

import (
	"errors"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestLookUp shows that the leader answers only look-ups that its own configuration grants to a
// handler of a route with workers, not those of Secrets, and none from caches that are older than
// the request needs.
func TestLookUp(t *testing.T) {
	// Guarantee: workers-lookup, include-scope
	store := index.NewStore()
	store.Put(thing(t, "pods", "a", "u", "7"))
	inv := &Inventory{
		config: &config.Config{Sources: map[string]*config.Source{
			"pods": {Resource: "v1/pods"}, "nodes": {Resource: "v1/nodes"}, "secrets": {Resource: "v1/secrets"}, "late": {Resource: "v1/pods"},
		}},
		catalog: index.NewCatalog(),
		stores:  make(map[string][]*index.Store), remote: make(map[string]remote),
	}
	for _, source := range []string{"pods", "nodes", "secrets", "late"} {
		inv.stores[source] = []*index.Store{store}
		inv.catalog.Add(source, []*index.Store{store}, nil)
	}
	grants := []plugins.LookupGrant{{Source: "pods"}, {Source: "nodes", Index: "byZone"}, {Source: "secrets"}, {Source: "late"}}
	for include, workers := range map[string]*config.Workers{"": {}, "ns": {}, "other": {}, "local": nil} {
		r := &config.Route{Handler: "h", Workers: workers}
		if include != "" {
			r.Fragment = &config.Fragment{Scope: &config.Scope{Prefix: include, Namespaces: []string{include}}}
		}
		inv.addRemote(&compile.Route{Route: r, Instance: r.Scope().Qualified("h"), HandlerGrants: grants})
	}
	current := &Current{}
	current.Store(inv)
	l := NewLookups(current, func(source string) bool { return source != "late" }, func(string) []string { return []string{"20"} })
	need := func(name, version string, deleted bool) []lookup.Need {
		return []lookup.Need{{Source: "pods", Namespace: "ns", Name: name, ResourceVersion: version, Deleted: deleted}}
	}
	for name, tt := range map[string]struct {
		request lookup.Request
		count   int
		err     error
	}{
		"get":                           {lookup.Request{Handler: "h", Source: "pods", Namespace: "ns", Name: "a"}, 1, nil},
		"list":                          {lookup.Request{Handler: "h", Source: "pods"}, 1, nil},
		"count":                         {lookup.Request{Handler: "h", Source: "pods", Count: true}, 1, nil},
		"include":                       {lookup.Request{Handler: "ns/h", Source: "pods"}, 1, nil},
		"another include":               {lookup.Request{Handler: "other/h", Source: "pods"}, 0, nil},
		"another include, counted":      {lookup.Request{Handler: "other/h", Source: "pods", Count: true}, 0, nil},
		"another include, one":          {lookup.Request{Handler: "other/h", Source: "pods", Namespace: "ns", Name: "a"}, 0, nil},
		"another include, the index":    {lookup.Request{Handler: "other/h", Source: "pods", Index: "namespace", Value: "ns"}, 0, nil},
		"an include, the index":         {lookup.Request{Handler: "ns/h", Source: "pods", Index: "namespace", Value: "ns"}, 1, nil},
		"an include's source":           {lookup.Request{Handler: "ns/h", Source: "services"}, 0, lookup.ErrDenied},
		"an include of the leader only": {lookup.Request{Handler: "local/h", Source: "pods"}, 0, lookup.ErrDenied},
		"another handler":               {lookup.Request{Handler: "g", Source: "pods"}, 0, lookup.ErrDenied},
		"another source":                {lookup.Request{Handler: "h", Source: "services"}, 0, lookup.ErrDenied},
		"the whole source":              {lookup.Request{Handler: "h", Source: "nodes"}, 0, lookup.ErrDenied},
		"secrets":                       {lookup.Request{Handler: "h", Source: "secrets"}, 0, lookup.ErrDenied},
		"a source that lists":           {lookup.Request{Handler: "h", Source: "late"}, 0, lookup.ErrBehind},
		"the same version":              {lookup.Request{Handler: "h", Source: "pods", Needs: need("a", "7", false)}, 1, nil},
		"an older version":              {lookup.Request{Handler: "h", Source: "pods", Needs: need("a", "19", false)}, 1, nil},
		"a later version":               {lookup.Request{Handler: "h", Source: "pods", Needs: need("a", "21", false)}, 0, lookup.ErrBehind},
		"deleted since":                 {lookup.Request{Handler: "h", Source: "pods", Needs: need("b", "20", false)}, 1, nil},
		"not known yet":                 {lookup.Request{Handler: "h", Source: "pods", Needs: need("b", "21", false)}, 0, lookup.ErrBehind},
		"its end":                       {lookup.Request{Handler: "h", Source: "pods", Needs: need("b", "21", true)}, 1, nil},
		"its end to come":               {lookup.Request{Handler: "h", Source: "pods", Needs: need("a", "21", true)}, 0, lookup.ErrBehind},
		"of a removed source":           {lookup.Request{Handler: "h", Source: "pods", Needs: []lookup.Need{{Source: "x", Name: "a", ResourceVersion: "99"}}}, 1, nil},
	} {
		a, err := l.LookUp(t.Context(), &tt.request)
		if !errors.Is(err, tt.err) || err == nil && a.Count != tt.count {
			t.Errorf("%s: got %v, %v", name, a, err)
		}
	}
}
