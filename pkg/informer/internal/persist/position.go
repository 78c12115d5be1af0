package persist

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Position is the applied resourceVersion of a watch and its cluster. It is a part of a [State],
// whose cut lock guards it. It is safe for concurrent use, except for methods that say that they
// are for the watch's own goroutine.
type Position struct {
	cut *sync.Mutex

	cluster   string // of the objects and intents; empty: unknown
	listing   string // the cluster that is being listed
	fed       string // the resourceVersion up to which everything is applied; see also NeverExisted
	relisting bool   // a list is partly applied
}

// Applied returns the resourceVersion up to which everything is applied. It is empty before the
// first list, and NeverExisted if the resource did not exist until then.
func (p *Position) Applied() string {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.fed
}

// Complete returns fed if the store corresponds to it.
func (p *Position) Complete() (fed string, ok bool) {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.fed, p.fed != "" && !p.relisting
}

// Relisting reports whether a list is partly applied.
func (p *Position) Relisting() bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.relisting
}

// Seen reports whether an event was applied before: the resourceVersions of a watch only grow. It
// is for the watch's own goroutine.
func (p *Position) Seen(version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, p.fed)
	return err == nil && order <= 0
}

// Is reports whether the objects are of that cluster. If their cluster is unknown, it is set to
// that one.
func (p *Position) Is(cluster string) bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	if p.cluster == "" {
		p.cluster = cluster
	}
	return cluster == "" || cluster == p.cluster
}

// SetListing records the cluster that is about to be listed, and reports whether the objects are of
// another one.
func (p *Position) SetListing(cluster string) (moved bool) {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.listing = cluster
	return p.moving()
}

// Moving reports whether the list and the objects are of different clusters.
func (p *Position) Moving() bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.moving()
}

func (p *Position) moving() bool { return p.listing != "" && p.cluster != "" && p.listing != p.cluster }

// SetRelisting notes that the next changes belong to another resourceVersion than fed.
func (p *Position) SetRelisting() {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.relisting = true
}

// SetGone records that the resource does not exist and has no objects left.
func (p *Position) SetGone() {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.fed, p.relisting = cmp.Or(p.fed, NeverExisted), true
}

// Lower reports whether a is surely a lower resourceVersion than b.
func Lower(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Older reports whether a is surely an older state than b.
func Older(a, b *event.Object) bool { return Lower(a.ResourceVersion(), b.ResourceVersion()) }

// IsIdentity reports whether an object has only its identity.
func IsIdentity(o *event.Object) bool {
	for name := range o.Raw().Get("metadata").Fields() { // first, because it usually decides
		switch name {
		case "name", "namespace", "uid", "resourceVersion":
		default:
			return false
		}
	}
	for name := range o.Raw().Fields() {
		switch name {
		case "apiVersion", "kind", "metadata":
		default:
			return false
		}
	}
	return true
}
