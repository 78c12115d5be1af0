package inspect

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Lookups answers the look-ups of handlers on the workers of a fleet. It is safe for concurrent
// use.
type Lookups struct {
	objects *Current
	synced  func(source string) bool
	// applied returns the resourceVersions up to which the watches of a source are applied.
	applied func(source string) []string
}

// NewLookups answers from the present inventory. synced reports whether the cache has all objects
// of a source, and applied returns the resourceVersions up to which its watches are applied.
func NewLookups(objects *Current, synced func(source string) bool, applied func(source string) []string) *Lookups {
	return &Lookups{objects, synced, applied}
}

// LookUp implements lookup.Lookups.
func (l *Lookups) LookUp(ctx context.Context, r *lookup.Request) (*lookup.Answer, error) {
	inv := l.objects.Load()
	from := inv.remote[r.Handler]
	if !inv.grants(from, r.Source, r.Index) {
		return nil, lookup.ErrDenied
	}
	if !l.synced(r.Source) {
		return nil, fmt.Errorf("source %q: %w", r.Source, lookup.ErrBehind)
	}
	for _, n := range r.Needs {
		if !l.has(inv, n) {
			return nil, fmt.Errorf("source %q: %w", n.Source, lookup.ErrBehind)
		}
	}
	found, count, err := plugins.Ask(ctx, from.catalog, plugins.LookupQuery{
		Source: r.Source, Index: r.Index, Value: r.Value, Namespace: r.Namespace, Name: r.Name, Count: r.Count,
	})
	return &lookup.Answer{Objects: found, Count: count}, err
}

// remote is the access of an instance of a handler on workers to the caches.
type remote struct {
	grants  []plugins.LookupGrant
	catalog *index.Catalog // it sees the scope of the routes
}

// addRemote adds the access of the handler of a route with workers.
func (inv *Inventory) addRemote(r *compile.Route) {
	if _, has := inv.remote[r.Instance]; has || r.Workers == nil || r.Handler == "" {
		return
	}
	catalog := inv.catalog
	if r.Fragment != nil {
		catalog = inv.scopedCatalog(r.Scope(), inv.specs)
	}
	inv.remote[r.Instance] = remote{r.HandlerGrants, catalog}
}

// grants reports whether a handler on workers may look up in the index of the source. Secrets stay
// with the leader.
func (inv *Inventory) grants(to remote, source, index string) bool {
	of := inv.config.Sources[source]
	if of == nil || of.Resource == "v1/secrets" {
		return false
	}
	for _, g := range to.grants {
		if g.Source == source && (g.Index == "" || g.Index == index) {
			return true
		}
	}
	return false
}

// has reports whether the caches are not older than a state. A source that the configuration does
// not have any more is not compared.
func (l *Lookups) has(inv *Inventory, n lookup.Need) bool {
	if inv.config.Sources[n.Source] == nil || n.ResourceVersion == "" {
		return true
	}
	var now *event.Object
	if now = inv.catalog.Get(n.Source, n.Namespace, n.Name); now != nil && reached(now.ResourceVersion(), n.ResourceVersion) {
		return true
	}
	if now == nil && n.Deleted {
		return true
	}
	return slices.ContainsFunc(l.applied(n.Source), func(version string) bool { return reached(version, n.ResourceVersion) })
}

// reached reports whether a version is not older than another. Versions that cannot be compared are
// not waited for.
func reached(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err != nil && version != "" || err == nil && order >= 0
}
