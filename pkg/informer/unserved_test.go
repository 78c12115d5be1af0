package informer_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// definition is a CustomResourceDefinition of pods in the group ex.com.
type definition struct {
	mu     sync.Mutex
	served []string
	exists int // the status of the answer for the definition
}

func (d *definition) set(exists int, served ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exists, d.served = exists, served
}

func (d *definition) intercept(w http.ResponseWriter, r *http.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := r.URL.Path
	version := ""
	for _, v := range d.served {
		if strings.HasPrefix(path, "/apis/ex.com/"+v) {
			version = v
		}
	}
	switch {
	case path == "/apis":
		groups := `{"name":"apiextensions.k8s.io","versions":[{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}]}`
		if len(d.served) > 0 {
			var versions []string
			for _, v := range d.served {
				versions = append(versions, fmt.Sprintf(`{"groupVersion":"ex.com/%s","version":%q}`, v, v))
			}
			groups += `,{"name":"ex.com","versions":[` + strings.Join(versions, ",") + `]}`
		}
		fmt.Fprintf(w, `{"kind":"APIGroupList","groups":[%s]}`, groups)
	case strings.Contains(path, "customresourcedefinitions"):
		switch d.exists {
		case http.StatusOK:
			fmt.Fprint(w, `{"kind":"PartialObjectMetadata","metadata":{"name":"pods.ex.com"}}`)
		case http.StatusForbidden:
			fail(w, http.StatusForbidden, "Forbidden", "no")
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"NotFound","details":{"name":"pods.ex.com"},"code":404}`)
		}
	case version == "":
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case path == "/apis/ex.com/"+version:
		fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}`)
	default:
		return false
	}
	return true
}

func unservedRig(t *testing.T) (*api, *definition, *rig) {
	t.Helper()
	a, d := newAPI(t), &definition{exists: http.StatusOK, served: []string{"v1"}}
	a.put("default/a", "web")
	a.put("default/b", "web")
	a.onRequest(d.intercept)
	o := options{config: informer.Config{ProbeInterval: 20 * time.Millisecond}}
	o.spec.Resource = schema.GroupVersionResource{Group: "ex.com", Version: "v1", Resource: "pods"}
	r := syncedRig(t, a, o)
	r.sink.take()
	return a, d, r
}

func (r *rig) named(text string) {
	r.t.Helper()
	eventually(r.t, "the source says: "+text, func() bool {
		s, _ := r.factory.Status("pods")
		return strings.Contains(s.Reason, text)
	})
}

// A version that is no longer served does not concern the objects: those that another version has
// are not deleted, and deletions there are detected.
func TestVersionNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d, r := unservedRig(t)
		d.set(http.StatusOK, "v2")
		a.dropWatches()
		r.named("version v1 is not served any more, v2 is: write resource: ex.com/v2/pods")
		if s, _ := r.factory.Status("pods"); !s.Refused {
			t.Error("it is not said that waiting does not help")
		}
		a.delete("default/b")
		r.sink.want(t, false, "deleted pods default/b stale")
		a.put("default/a", "db")
		d.set(http.StatusOK, "v1", "v2")
		r.sink.want(t, false, "updated pods default/a")
	})
}

// As long as its definition exists, no object is deleted of a resource that is served in no
// version.
func TestDefinitionExists(t *testing.T) {
	// Guarantee: version-not-served
	synctest.Test(t, func(t *testing.T) {
		a, d, r := unservedRig(t)
		d.set(http.StatusOK)
		a.dropWatches()
		r.named("its CustomResourceDefinition exists, and serves no version of it")
		if got := r.sink.take(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		d.set(http.StatusOK, "v1")
		a.put("default/c", "web")
		r.sink.want(t, false, "added pods default/c")
		d.set(http.StatusNotFound)
		a.dropWatches()
		r.sink.want(t, true, "deleted pods default/a stale", "deleted pods default/b stale", "deleted pods default/c stale")
	})
}

// If the definition may not be read, a resource that is served in no version is gone.
func TestDefinitionForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d, r := unservedRig(t)
		d.set(http.StatusForbidden)
		a.dropWatches()
		r.sink.want(t, true, "deleted pods default/a stale", "deleted pods default/b stale")
	})
}

// TestAbsentResource: as long as a resource does not exist, only the list of groups is requested,
// which all such sources share. The resource is found when it comes.
func TestAbsentResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := newAPI(t), &definition{exists: http.StatusNotFound}
		a.put("default/a", "web")
		var mu sync.Mutex
		var paths []string
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			paths = append(paths, r.URL.Path)
			mu.Unlock()
			return d.intercept(w, r)
		})
		o := options{}
		o.spec.Resource = schema.GroupVersionResource{Group: "ex.com", Version: "v1", Resource: "pods"}
		r := newRig(t, a, o)
		r.start()
		requested := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(paths)
		}
		eventually(t, "requests", func() bool { return len(requested()) > 20 })
		if got := requested()[10:]; slices.ContainsFunc(got, func(path string) bool { return path != "/apis" }) {
			t.Errorf("requested %v", got)
		}
		r.named("does not exist (yet)")
		d.set(http.StatusOK, "v1")
		r.sink.want(t, false, "added pods default/a")
	})
}

// If an API server temporarily does not serve a resource that its discovery has, the watch resumes
// without a list.
func TestUnknownForAWhile(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, o)
		r.sink.take()
		lists := a.lists()
		var refused atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) == "DISCOVERY" || refused.Add(1) > 6 {
				return false
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "404 page not found")
			return true
		})
		a.dropWatches()
		a.put("default/a", "db")
		a.put("default/a", "web")
		r.sink.want(t, false, "updated pods default/a", "updated pods default/a")
		if n := a.lists() - lists; n > 0 || r.metric("source_relists_total") > 0 {
			t.Errorf("%d lists, %v relists", n, r.metric("source_relists_total"))
		}
	})
}
