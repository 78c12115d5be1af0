package persist

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Position is the applied resourceVersion of a watch and its cluster. Several events may have one
// resourceVersion, because the API server changed their objects in one transaction. So the position
// to resume from moves to a version only with the first event or bookmark above it, or with the
// second bookmark of it. It is a part of a [State], whose cut lock guards it. It is safe for
// concurrent use, except for methods that say that they are for the watch's own goroutine.
type Position struct {
	cut *sync.Mutex

	cluster   string // of the objects and intents; empty: unknown
	listing   string // the cluster that is being listed
	applied   string // the resourceVersion up to which everything is applied; see also NeverExisted
	open      string // of the last events or bookmark; more events of it may follow. Empty: there were none above applied
	marked    bool   // the last was a bookmark of open
	saved     string // reached when the state that was restored was saved; empty: later than that
	relisting bool   // a list is partly applied
	marks     []*Mark
}

// Mark keeps the saved position from passing an event that is held back, so that the event arrives
// again after a crash. The position of the running watch goes on.
type Mark struct {
	applied string
	// list: after a crash a list is needed, because the event would not arrive again.
	list bool
}

// Hold returns a mark before an event, by its resourceVersion; empty: the event would not arrive
// again, as it is a difference that a list has found.
func (p *Position) Hold(version string) *Mark {
	p.cut.Lock()
	defer p.cut.Unlock()
	m := &Mark{p.applied, version == "" || p.relisting || NotAbove(version, p.applied)}
	p.marks = append(p.marks, m)
	return m
}

// Begin is called before the event of a mark is applied. If later events wait for it, a crash from
// here on needs a list: when the event arrives again, nothing shows that these are missing. It
// returns the former value of the mark.
func (p *Position) Begin(m *Mark, later bool) (was Mark) {
	p.cut.Lock()
	defer p.cut.Unlock()
	was, m.list = *m, m.list || later
	return was
}

// Resume sets a mark to the former value of another one: of the waiting events, its own is now the
// first.
func (p *Position) Resume(m *Mark, was Mark) {
	p.cut.Lock()
	defer p.cut.Unlock()
	*m = was
}

// Release removes a mark.
func (p *Position) Release(m *Mark) {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.marks = slices.DeleteFunc(p.marks, func(other *Mark) bool { return other == m })
}

// unmark makes the next start list because of the events that are held back: the present list is
// not the one that they follow.
func (p *Position) unmark() {
	for _, m := range p.marks {
		m.list = true
	}
}

// durable returns the position to save, and whether a list is needed after it is restored.
func (p *Position) durable() (applied string, relisting bool) {
	if len(p.marks) == 0 {
		return p.applied, p.relisting
	}
	return p.marks[0].applied, p.relisting || slices.ContainsFunc(p.marks, func(m *Mark) bool { return m.list })
}

// Applied returns the latest resourceVersion of which something is applied. It is empty before the
// first list, and NeverExisted if the resource did not exist until then.
func (p *Position) Applied() string {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.reached()
}

// From returns the resourceVersion to resume from: up to it everything is applied. It is equal to
// that of Applied, or older.
func (p *Position) From() string {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.applied
}

// Complete returns the applied resourceVersion if the store corresponds to it.
func (p *Position) Complete() (applied string, ok bool) {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.reached(), p.applied != "" && !p.relisting
}

func (p *Position) reached() string { return cmp.Or(p.open, p.applied) }

// Relisting reports whether a list is partly applied.
func (p *Position) Relisting() bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.relisting
}

// arrive records an event that is applied. If it is above all others, no more of the last version
// follow. An event below others leaves the position as it is.
func (p *Position) arrive(version string) {
	if version == "" {
		return
	}
	if version == p.open {
		p.marked = false // the events of the version arrive once more
	} else if !NotAbove(version, p.reached()) {
		p.applied, p.open, p.marked = p.reached(), version, false
	}
}

// bookmark records a bookmark. The API server sends one at intervals, and possibly before or
// between the events of its version, of which a watch with a selector may receive the later ones
// only. So a bookmark completes the versions below its own, and its own if another bookmark of it
// follows.
func (p *Position) bookmark(version string) {
	if version == "" {
		p.marked = false
		return
	}
	if version == p.open {
		if p.marked {
			p.listed(version)
		} else {
			p.marked = true
		}
		return
	}
	if !NotAbove(version, p.reached()) {
		p.applied, p.open, p.marked = p.reached(), version, true
	}
}

// listed records that everything up to a version is applied.
func (p *Position) listed(version string) {
	p.applied, p.open, p.marked, p.saved = version, "", false, ""
}

// Repeats reports whether an event of a version surely repeats a former run's, if it ends an object
// that the restored store does not have: the run would have had the object, and has saved a state
// of that version or a later one.
func (p *Position) Repeats(version string) bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.saved != "" && NotAbove(version, p.saved)
}

// Replays reports whether an event of a version repeats a former run's: the run has applied it, or
// held it back behind an event of its key that comes before it. The resourceVersions of the saved
// position and of the applied events differ because of a [Mark].
func (p *Position) Replays(version string) bool {
	p.cut.Lock()
	defer p.cut.Unlock()
	return p.saved != "" && Lower(p.applied, p.saved) && Lower(version, p.saved)
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

// SetRelisting notes that the next changes belong to another resourceVersion than applied.
func (p *Position) SetRelisting() {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.relisting = true
}

// SetGone records that the resource does not exist and has no objects left.
func (p *Position) SetGone() {
	p.cut.Lock()
	defer p.cut.Unlock()
	p.applied, p.relisting = cmp.Or(p.applied, NeverExisted), true
}

// Lower reports whether a is surely a lower resourceVersion than b.
func Lower(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// NotAbove reports whether a is equal to b or surely a lower resourceVersion.
func NotAbove(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return a == b || err == nil && order <= 0
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
