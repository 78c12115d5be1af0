package reflector

import (
	"errors"
	"net/url"
	"strconv"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Target is the watched resource in terms of the API server. Its methods are safe for concurrent
// use.
type Target struct {
	GVR       schema.GroupVersionResource
	Cluster   string // the name of the cluster
	Namespace string // empty: all, or the resource has no namespaces
	// InSelected: only the objects in some namespaces are kept, see [wire.Format].
	InSelected    bool
	LabelSelector string
	FieldSelector string
	// Metadata is the format of requests that need only metadata.
	Metadata *wire.Format

	format     atomic.Pointer[format]
	reached    atomic.Int64
	resource   atomic.Pointer[event.Resource]
	namespaced atomic.Bool
}

// format is the format of the kept objects. A later one has a higher number.
type format struct {
	*wire.Format

	number int64
}

// Format returns the format of the kept objects.
func (t *Target) Format() *wire.Format { return t.format.Load().Format }

// SetFormat sets the format of the objects of all later responses. It is called by one goroutine at
// a time, first before the watch runs. It returns the number of the format, see [Target.Reached].
func (t *Target) SetFormat(f *wire.Format) (number int64) {
	if before := t.format.Load(); before != nil {
		number = before.number + 1
	}
	t.format.Store(&format{f, number})
	return number
}

// Reached reports whether everything that the Reflector receives from now on has the format of a
// number or a later one, and whether everything before was applied.
func (t *Target) Reached(number int64) bool { return t.reached.Load() >= number }

// reach notes that the Reflector begins a response of a format. It has passed on everything that it
// received before.
func (t *Target) reach(f *format) {
	if f.number > t.reached.Load() {
		t.reached.Store(f.number)
	}
}

// Resource returns the resource that all objects of the watch share. Its Kind may be empty until
// discovery has answered.
func (t *Target) Resource() *event.Resource { return t.resource.Load() }

// SetKind sets the kind of the objects; empty: unknown. Objects made from then on have a new
// Resource.
func (t *Target) SetKind(kind string) {
	t.resource.Store(&event.Resource{GroupVersionResource: t.GVR, Cluster: t.Cluster, Kind: kind})
}

// discovered records the answer of discovery.
func (t *Target) discovered(found client.Found) {
	t.SetKind(found.Kind)
	t.namespaced.Store(found.Namespaced)
}

// misplaced returns the error of a resource without namespaces, if some were configured.
func (t *Target) misplaced() error {
	if t.Namespace != "" {
		return errors.New("the resource has no namespaces: leave namespaces out")
	}
	if t.InSelected {
		return errors.New("the resource has no namespaces: leave namespaceSelector out")
	}
	return nil
}

// LearnKind takes the kind from an object that has the Resource, before discovery has answered. It
// is called by one goroutine at a time, and before the first read of the kind.
func (t *Target) LearnKind(o *event.Object) {
	if resource := t.resource.Load(); resource.Kind == "" && o.Resource() == resource {
		resource.Kind = o.Raw().Get("kind").Str()
	}
}

// Path returns the URL path of the objects.
func (t *Target) Path() string {
	namespace := t.Namespace
	if !t.namespaced.Load() {
		namespace = ""
	}
	return client.ResourcePath(t.GVR, namespace)
}

// Query returns the parameters of a list or watch request.
func (t *Target) Query(opts metav1.ListOptions) url.Values {
	// The names are those of metav1.ListOptions in a URL.
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("labelSelector", t.LabelSelector)
	set("fieldSelector", t.FieldSelector)
	set("resourceVersion", opts.ResourceVersion)
	set("resourceVersionMatch", string(opts.ResourceVersionMatch))
	set("continue", opts.Continue)
	if opts.Limit > 0 {
		set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	if opts.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*opts.TimeoutSeconds, 10))
	}
	if opts.Watch {
		set("watch", "true")
	}
	if opts.AllowWatchBookmarks {
		set("allowWatchBookmarks", "true")
	}
	if opts.SendInitialEvents != nil {
		set("sendInitialEvents", strconv.FormatBool(*opts.SendInitialEvents))
	}
	return q
}
