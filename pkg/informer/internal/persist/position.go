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

	cluster   string // that the objects and intents are of; empty: not known
	listing   string // the cluster that is being listed
	fed       string // the resourceVersion up to which everything is applied; see also NeverExisted
	relisting bool   // some of a list was applied and some not
}

// Applied returns the resourceVersion up to which everything was applied; empty before the first
// list, and NeverExisted if the resource was found not to exist before it.
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

// Relisting reports whether some of a list was applied and some not. It is for the watch's own
// goroutine.
func (p *Position) Relisting() bool { return p.relisting }

// Seen reports whether an event is known to have been applied already: the versions of a watch only
// grow. It is for the watch's own goroutine.
func (p *Position) Seen(version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, p.fed)
	return err == nil && order <= 0
}

// Is reports whether the objects are of that cluster, as far as that is known. If nothing was known
// of them so far they are taken for it.
func (p *Position) Is(cluster string) bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	if p.cluster == "" {
		p.cluster = cluster
	}
	return cluster == "" || cluster == p.cluster
}

// SetListing notes which cluster is about to be listed, and reports whether that is another one
// than the objects are of.
func (p *Position) SetListing(cluster string) (moved bool) {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.listing = cluster
	return p.moving()
}

// Moving reports whether another cluster is being listed than the objects are of.
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

// SetGone notes that the resource does not exist, and that nothing of it is left.
func (p *Position) SetGone() {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.fed, p.relisting = cmp.Or(p.fed, NeverExisted), true
}

// Lower reports whether a is known to be a lower resourceVersion than b.
func Lower(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Older reports whether a is known to be an older state than b.
func Older(a, b *event.Object) bool { return Lower(a.ResourceVersion(), b.ResourceVersion()) }

// IsIdentity reports whether nothing but its identity is there of an object.
func IsIdentity(o *event.Object) bool {
	for name := range o.Raw().Get("metadata").Fields() { // first, because it says no soonest
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
