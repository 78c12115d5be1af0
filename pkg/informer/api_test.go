package informer_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/pipenet"
)

// api is an API server with one resource, v1/pods, that keeps the whole history of its objects.
type api struct {
	t      *testing.T
	server *httptest.Server
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu        sync.Mutex
	version   int
	pods      map[string]pod
	history   []change
	compacted int           // watches from an earlier version get 410
	changed   chan struct{} // closed at each change
	drop      chan struct{} // closed to end all watches
	watching  int           // the number of watches that drop ends
	uids      int
	// intercept may answer a request itself; it then returns true.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	requests  []string // LIST, PROBE, WATCH, WATCHLIST, GET …
	resources string   // answer of discovery for v1; empty: pods exist
	cluster   string   // the identity; empty: it may not be read
	lost      int      // no watch receives the event of this version
	uncounted int      // the number of pods that are missing in the remainingItemCount
}

type pod struct {
	namespace, name, uid, app string
	version                   int
	extra                     string // more members: ,"spec":{…}
}

type change struct {
	version  int
	old, now *pod
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, version: 100, cluster: "one", pods: map[string]pod{}, changed: make(chan struct{}), drop: make(chan struct{})}
	server, network := pipenet.Serve(http.HandlerFunc(a.serve))
	a.server, a.dial = server, network.Dial
	t.Cleanup(func() { a.dropWatches(); a.server.Close() })
	return a
}

func (a *api) client() *informer.Client {
	c, err := informer.NewClientFor(&rest.Config{Host: a.server.URL, Dial: a.dial})
	must.Succeed(a.t, err)
	a.t.Cleanup(c.Close)
	return c
}

// text returns the pod's JSON; in lists it has no kind.
func (p *pod) text(kind string) string {
	return fmt.Sprintf(`{%s"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"app":%q},"managedFields":[{"manager":"x"}]}%s}`,
		kind, p.name, p.namespace, p.uid, p.version, p.app, p.extra)
}

const kindOfPod = `"kind":"Pod","apiVersion":"v1",`

// put creates or updates a pod; app is its label.
func (a *api) put(key, app string, extra ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	namespace, name, _ := strings.Cut(key, "/")
	p := pod{namespace: namespace, name: name, app: app, extra: strings.Join(extra, "")}
	old, ok := a.pods[key]
	if p.uid = old.uid; !ok {
		a.uids++
		p.uid = fmt.Sprintf("uid-%d", a.uids)
	}
	a.version++
	p.version = a.version
	a.pods[key] = p
	c := change{version: a.version, now: &p}
	if ok {
		c.old = &old
	}
	a.record(c)
}

func (a *api) delete(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.pods[key]
	delete(a.pods, key)
	a.version++
	a.record(change{version: a.version, old: &old})
}

func (a *api) record(c change) {
	a.history = append(a.history, c)
	close(a.changed)
	a.changed = make(chan struct{})
}

// compact drops the history.
func (a *api) compact() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++ // a change of an object of another resource
	a.compacted = a.version
}

// awaitWatch waits for a watch: a synced source may open its first one only now, and dropWatches
// would not end it.
func (a *api) awaitWatch() {
	a.t.Helper()
	eventually(a.t, "a watch is open", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.watching > 0
	})
}

// dropWatches ends the watches that are open.
func (a *api) dropWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.drop)
	a.drop = make(chan struct{})
}

func (a *api) onRequest(f func(w http.ResponseWriter, r *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.intercept = f
}

func (a *api) setResources(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resources = s
}

func (a *api) seen(kind string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if r == kind {
			n++
		}
	}
	return n
}

func kindOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case strings.HasSuffix(r.URL.Path, "/kube-system"):
		return "IDENTITY"
	case !strings.Contains(r.URL.Path, "/pods"):
		return "DISCOVERY"
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		return "GET"
	case q.Get("sendInitialEvents") == "true":
		return "WATCHLIST"
	case q.Get("watch") == "true":
		return "WATCH"
	case q.Get("limit") == "1" && !q.Has("continue"):
		return "PROBE"
	}
	return "LIST"
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	kind := kindOf(r)
	a.mu.Lock()
	a.requests = append(a.requests, kind)
	intercept, resources, cluster := a.intercept, a.resources, a.cluster
	a.mu.Unlock()
	if kind == "IDENTITY" { // not passed to the interceptors
		identify(w, cluster)
		return
	}
	if intercept != nil && intercept(w, r) {
		return
	}
	switch kind {
	case "DISCOVERY":
		if resources == "" {
			resources = `{"name":"pods","namespaced":true,"kind":"Pod"}`
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","resources":[%s]}`, resources)
	case "GET":
		a.get(w, r)
	case "LIST", "PROBE":
		a.list(w, r)
	default:
		a.watch(w, r)
	}
}

func identify(w http.ResponseWriter, cluster string) {
	if cluster == "" {
		fail(w, http.StatusForbidden, "Forbidden", "namespaces \"kube-system\" is forbidden")
		return
	}
	fmt.Fprintf(w, `{"kind":"Namespace","metadata":{"name":"kube-system","uid":%q}}`, cluster)
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	key := parts[4] + "/" + parts[6]
	a.mu.Lock()
	p, ok := a.pods[key]
	a.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":"NotFound","details":{"name":%q,"kind":"pods"},"code":404}`, p.name+parts[6])
		return
	}
	fmt.Fprint(w, p.text(`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`))
}

// selects reports whether the selectors of the request match the pod.
func selects(r *http.Request, p *pod) bool {
	if p == nil {
		return false
	}
	if app, ok := strings.CutPrefix(r.URL.Query().Get("labelSelector"), "app="); ok && app != p.app {
		return false
	}
	if name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); ok && name != p.name {
		return false
	}
	parts := strings.Split(r.URL.Path, "/")
	return len(parts) < 6 || parts[4] == p.namespace
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods, version := a.pods, a.version
	if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
		version, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		if version < a.compacted {
			fail(w, http.StatusGone, "Expired", "too old resource version")
			return
		}
		pods = a.podsAt(version)
	}
	keys := slices.Sorted(maps.Keys(pods))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	var items []string
	next := ""
	for i := from; i < len(keys); i++ {
		p := pods[keys[i]]
		if !selects(r, &p) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = fmt.Sprintf(`,"continue":"%d","remainingItemCount":%d`, i, remaining(r, pods, keys[i:])-a.uncounted)
			break
		}
		items = append(items, p.text(""))
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}`, version, next, strings.Join(items, ","))
}

// remaining returns the number of the pods with these keys that the request selects.
func remaining(r *http.Request, pods map[string]pod, keys []string) (n int) {
	for _, key := range keys {
		if p := pods[key]; selects(r, &p) {
			n++
		}
	}
	return n
}

// podsAt returns the pods as of a version.
func (a *api) podsAt(version int) map[string]pod {
	pods := make(map[string]pod)
	for _, c := range a.history {
		switch {
		case c.version > version:
		case c.now != nil:
			pods[c.now.namespace+"/"+c.now.name] = *c.now
		default:
			delete(pods, c.old.namespace+"/"+c.old.name)
		}
	}
	return pods
}

func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	if from > 0 && from < a.compacted && q.Get("sendInitialEvents") != "true" {
		a.mu.Unlock()
		fail(w, http.StatusGone, "Expired", "too old resource version")
		return
	}
	drop := a.drop
	a.watching++
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watching--
	}()
	if q.Get("sendInitialEvents") == "true" {
		from = a.version
		for _, p := range a.pods {
			if selects(r, &p) {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", p.text(kindOfPod))
			}
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", from)
	}
	a.mu.Unlock()
	for {
		a.mu.Lock()
		if a.drop != drop { // a drop loses the events behind it
			a.mu.Unlock()
			return
		}
		var out []string
		for _, c := range a.history {
			if c.version > from {
				if c.version != a.lost {
					out = append(out, eventFor(r, c))
				}
				from = c.version
			}
		}
		changed := a.changed
		a.mu.Unlock()
		fmt.Fprint(w, strings.Join(out, ""))
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-drop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// eventFor returns the frame of a change for a watch with the request's selectors.
func eventFor(r *http.Request, c change) string {
	was, is := selects(r, c.old), selects(r, c.now)
	switch {
	case is && was:
		return frame("MODIFIED", c.now)
	case is:
		return frame("ADDED", c.now)
	case was:
		last := *c.old
		last.version = c.version
		return frame("DELETED", &last)
	}
	return ""
}

func frame(kind string, p *pod) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, p.text(kindOfPod))
}
