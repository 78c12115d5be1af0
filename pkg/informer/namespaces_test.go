package informer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// spaces is an API server of namespaces beside one of pods. The label app of a namespace is its
// team.
type spaces struct {
	*api

	namespaces *api
	mu         sync.Mutex
	intercept  func(w http.ResponseWriter, r *http.Request) bool // of requests about pods
}

func newSpaces(t *testing.T) *spaces {
	t.Helper()
	s := &spaces{api: newAPI(t), namespaces: newAPI(t)}
	s.setResources(`{"name":"pods","namespaced":true,"kind":"Pod"},{"name":"namespaces","namespaced":false,"kind":"Namespace"}`)
	s.api.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces")
		if ok && !strings.Contains(rest, "/pods") {
			r = r.Clone(r.Context())
			r.URL = &url.URL{Path: "/api/v1/pods", RawQuery: r.URL.RawQuery}
			if rest != "" {
				r.URL.Path = "/api/v1/namespaces//pods" + rest
			}
			s.namespaces.serve(w, r)
			return true
		}
		s.mu.Lock()
		intercept := s.intercept
		s.mu.Unlock()
		return intercept != nil && intercept(w, r)
	})
	return s
}

func (s *spaces) onPods(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// rig returns a factory whose pods are those in the namespaces of the team.
func (s *spaces) rig(t *testing.T, config informer.Config) (r *rig, finder *informer.Watch) {
	t.Helper()
	spec := informer.Spec{NamespaceSelector: "app=team"}
	of, ok := spec.Namespaces()
	if !ok {
		t.Fatal("no watch finds the namespaces")
	}
	r = newRig(t, s.api, options{spec: spec, config: config, before: func(f *informer.Factory) { finder = f.Watch(of, newMemory()) }})
	return r, finder
}

// TestIncludeMissesNothing: while the objects in a namespace that has just been selected are
// listed, one is created and one is deleted after the list was made. Both events are behind it in
// the watch.
func TestIncludeMissesNothing(t *testing.T) {
	// Guarantee: namespace-selector
	s := newSpaces(t)
	s.namespaces.put("/a", "team")
	s.namespaces.put("/b", "other")
	s.put("b/old", "x")
	r, _ := s.rig(t, informer.Config{})
	r.start()
	r.synced()
	s.awaitWatch()
	listed, goOn := make(chan struct{}), make(chan struct{})
	s.onPods(holdList(s, "/api/v1/namespaces/b/pods", listed, goOn))
	s.namespaces.put("/b", "team")
	<-listed
	s.put("b/new", "x")
	s.delete("b/old")
	s.put("a/mark", "x")
	close(goOn)
	r.sink.want(t, true, "added pods b/old", "added pods b/new", "deleted pods b/old", "added pods a/mark")
}

// holdList answers the first list of a path after goOn is closed, with the objects of the moment at
// which listed is closed.
func holdList(s *spaces, path string, listed, goOn chan struct{}) func(http.ResponseWriter, *http.Request) bool {
	var once sync.Once
	return func(w http.ResponseWriter, r *http.Request) (mine bool) {
		if r.URL.Path != path || kindOf(r) != "LIST" {
			return false
		}
		once.Do(func() {
			mine = true
			answer := httptest.NewRecorder()
			s.list(answer, r)
			close(listed)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			_, _ = w.Write(answer.Body.Bytes())
		})
		return mine
	}
}

// TestSelectedDuringList: a namespace is selected, and an object is created in it, after the
// resource was listed again and before that list is applied. The object is not taken for missing.
func TestSelectedDuringList(t *testing.T) {
	// Guarantee: namespace-selector
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t)
		s.namespaces.put("/a", "team")
		s.namespaces.put("/b", "other")
		s.put("a/p", "x")
		r, _ := s.rig(t, informer.Config{PageSize: 100})
		r.start()
		r.synced()
		s.awaitWatch()
		r.sink.want(t, false, "added pods a/p initial")
		listed, goOn := make(chan struct{}), make(chan struct{})
		s.onPods(holdList(s, "/api/v1/pods", listed, goOn))
		s.compact()
		s.dropWatches()
		<-listed
		s.put("b/p", "x")
		s.namespaces.put("/b", "team")
		r.sink.want(t, false, "added pods b/p")
		close(goOn)
		eventually(t, "the list is applied", func() bool { return strings.Contains(r.log.String(), "listed again") })
		s.put("a/mark", "x")
		s.put("b/mark", "x")
		r.sink.want(t, false, "added pods a/mark", "added pods b/mark")
	})
}

// TestHalfFollowedNamespaces: a crash came after the objects had followed a change of a namespace,
// and before the change itself was in a cut. The restart brings both together.
func TestHalfFollowedNamespaces(t *testing.T) {
	// Guarantee: namespace-selector
	for name, test := range map[string]struct {
		saved []string // the namespaces in the cut
		pods  []string // the pods in the cut
		want  []string
	}{
		"selected, and left while the router was down": {[]string{"a"}, []string{"a/p", "b/p"}, []string{"deselected pods b/p"}},
		"left":                                            {[]string{"a", "b"}, []string{"a/p"}, nil},
		"left while the router was down":                  {[]string{"a", "b"}, []string{"a/p", "b/p"}, []string{"deselected pods b/p"}},
		"unchanged, with an object that is gone":          {[]string{"a"}, []string{"a/p"}, nil},
		"left, and an object was deleted in it meanwhile": {[]string{"a", "b"}, []string{"a/p", "b/gone"}, []string{"deleted pods b/gone"}},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newSpaces(t)
			for _, n := range []string{"a", "b"} {
				s.namespaces.put("/"+n, "team")
				s.put(n+"/p", "x")
			}
			s.put("b/gone", "x")
			r, finder := s.rig(t, informer.Config{})
			finder.Restore(s.namespaces.restored(t, finder, test.saved, "/"))
			r.watch.Restore(s.restored(t, r.watch, test.pods, ""))
			s.namespaces.put("/b", "other")
			s.delete("b/gone")
			r.start()
			r.synced()
			// The watch of the pods may report the deletion before the namespace has left.
			eventually(t, fmt.Sprint(test.want), func() bool { return len(r.sink.peek()) >= len(test.want) })
			if got := strings.ReplaceAll(strings.Join(r.sink.take(), " "), " stale", ""); got != strings.Join(test.want, " ") {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			eventually(t, "one namespace is selected", func() bool { status, _ := r.factory.Status("pods"); return *status.Namespaces == 1 })
			s.put("b/mark", "x")
			s.put("a/mark", "x")
			r.sink.want(t, false, "added pods a/mark")
		})
	}
}

// restored returns a saved state with these objects, as of now.
func (a *api) restored(t *testing.T, w *informer.Watch, names []string, prefix string) informer.Restored {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	saved := informer.Restored{Cluster: "one", Applied: strconv.Itoa(a.version), Listed: true}
	for _, name := range names {
		p := a.pods[prefix+name]
		o, err := informer.Keep(w.Spec(), "test", p.text(kindOfPod))
		must.Succeed(t, err)
		saved.Objects = append(saved.Objects, o)
	}
	return saved
}

// TestNamespacesListedAtRestart: the history of the namespaces was dropped while the router was
// down, that of the objects was not. A change of the namespaces is found all the same.
func TestNamespacesListedAtRestart(t *testing.T) {
	// Guarantee: namespace-selector
	for change, test := range map[string]struct {
		do   func(s *spaces)
		want string
	}{
		"enters": {func(s *spaces) { s.namespaces.put("/enters", "team") }, "added pods enters/p"},
		"leaves": {func(s *spaces) { s.namespaces.put("/leaves", "other") }, "deselected pods leaves/p stale"},
		"ends": {
			func(s *spaces) { s.delete("leaves/p"); s.namespaces.delete("/leaves") },
			"deleted pods leaves/p stale",
		},
	} {
		t.Run(change, func(t *testing.T) {
			s := newSpaces(t)
			for n, team := range map[string]string{"stays": "team", "leaves": "team", "enters": "other"} {
				s.namespaces.put("/"+n, team)
				s.put(n+"/p", "x")
			}
			r, finder := s.rig(t, informer.Config{})
			finder.Restore(s.namespaces.restored(t, finder, []string{"stays", "leaves"}, "/"))
			r.watch.Restore(s.restored(t, r.watch, []string{"stays/p", "leaves/p"}, ""))
			test.do(s)
			s.namespaces.compact()
			r.start()
			r.synced()
			r.sink.want(t, false, test.want)
			s.put("stays/mark", "x")
			r.sink.want(t, false, "added pods stays/mark")
		})
	}
}

// TestSelectedNamespaceNotListed: a list of a namespace that has just been selected fails. Then the
// resource is listed as a whole.
func TestSelectedNamespaceNotListed(t *testing.T) {
	s := newSpaces(t)
	s.namespaces.put("/a", "team")
	s.namespaces.put("/b", "other")
	s.put("a/p", "x")
	s.put("b/p", "x")
	r, _ := s.rig(t, informer.Config{})
	r.start()
	r.synced()
	s.awaitWatch()
	r.sink.want(t, false, "added pods a/p initial")
	s.onPods(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/namespaces/b/pods" {
			return false
		}
		fail(w, http.StatusInternalServerError, "InternalError", "etcd has no leader")
		return true
	})
	s.namespaces.put("/b", "team")
	r.sink.want(t, false, "added pods b/p")
	s.put("b/mark", "x")
	r.sink.want(t, false, "added pods b/mark")
}

// TestDeletedNamespace: the deletion of a namespace arrives before those of its last objects. These
// are awaited, so that their deletions are not inferred.
func TestDeletedNamespace(t *testing.T) {
	// Guarantee: namespace-selector
	s := newSpaces(t)
	s.namespaces.put("/a", "team")
	s.namespaces.put("/b", "team")
	s.put("b/p", "x")
	r, _ := s.rig(t, informer.Config{})
	r.start()
	r.synced()
	s.awaitWatch()
	r.sink.want(t, false, "added pods b/p initial")
	s.namespaces.delete("/b")
	eventually(t, "the router asks whether the namespace is gone", func() bool { return s.namespaces.seen("GET") > 0 })
	s.delete("b/p")
	r.sink.want(t, false, "deleted pods b/p")
}
