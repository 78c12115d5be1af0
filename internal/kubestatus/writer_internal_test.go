package kubestatus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// apiServer answers patches, and keeps them.
type apiServer struct {
	mu     sync.Mutex
	status int
	got    []string // path and uid
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var body struct {
		Metadata struct{ UID string }
		Status   Status
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Method != http.MethodPatch || len(body.Status.Conditions) != 3 {
		a.status = http.StatusBadRequest
	}
	a.got = append(a.got, r.URL.Path+" "+body.Metadata.UID)
	w.WriteHeader(a.status)
}

func newWriter(t *testing.T, status int) (*Writer, *apiServer) {
	t.Helper()
	api := &apiServer{status: status}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	now := func() time.Time { return time.Unix(1e9, 0) }
	return NewWriter(&plugins.API{URL: server.URL + "/prefix", Client: client}, slog.New(slog.DiscardHandler), now), api
}

// TestWriterWritesDifferences shows the requests, and that an object is written again only if its
// state differs, it is another object, or the API server has another status of it at the start.
func TestWriterWritesDifferences(t *testing.T) {
	w, api := newWriter(t, http.StatusOK)
	web := &Object{Key: Key{Route, "ns", "web"}, UID: "1"}
	all := &Object{Key: Key{clusterRoute, "", "all"}, UID: "2"}
	pass := func(states map[*Object]State, want ...string) {
		t.Helper()
		api.got = nil
		if err := w.pass(t.Context(), states); err != nil {
			t.Fatal(err)
		}
		if len(api.got) != len(want) {
			t.Errorf("got %q, want %q", api.got, want)
		}
		for _, one := range want {
			if !strings.Contains(strings.Join(api.got, "\n"), one) {
				t.Errorf("got %q, want %s", api.got, one)
			}
		}
	}
	const webPath, allPath = "/prefix/apis/deltarouter.io/v1alpha1/namespaces/ns/routes/web/status ", "/prefix/apis/deltarouter.io/v1alpha1/clusterroutes/all/status "
	ok := State{Generation: 1, Runs: true}
	pass(map[*Object]State{web: ok, all: ok}, webPath+"1", allPath+"2")
	pass(map[*Object]State{web: ok, all: ok})
	broken := State{Generation: 2, Problem: "p"}
	pass(map[*Object]State{web: broken, all: ok}, webPath+"1")
	// the watch has not seen the write yet: no second one
	stale := *web
	pass(map[*Object]State{&stale: broken, all: ok})
	// it was deleted and made again
	made := &Object{Key: web.Key, UID: "3"}
	pass(map[*Object]State{made: ok, all: ok}, webPath+"3")
	// another run of the router finds its own status
	status, _ := statusOf(&ok, &Status{}, w.written[made.Key].status.Conditions[0].LastTransitionTime)
	w.written = make(map[Key]write)
	found := &Object{Key: made.Key, UID: "3", Status: status}
	pass(map[*Object]State{found: ok})
}

// TestWriterCounts: counts alone are written at most once a minute, and at once with a condition or
// at the start.
func TestWriterCounts(t *testing.T) {
	w, api := newWriter(t, http.StatusOK)
	now := time.Unix(1e9, 0)
	w.now = func() time.Time { return now }
	web := &Object{Key: Key{Route, "ns", "web"}, UID: "1"}
	for i, step := range []struct {
		after     time.Duration
		delivered uint64
		paused    bool
		writes    int
	}{
		{0, 0, false, 1},
		{time.Second, 1, false, 0},
		{58 * time.Second, 2, false, 0},
		{time.Second, 2, false, 1},
		{time.Hour, 2, false, 0},
		{time.Second, 3, false, 1},
		{time.Second, 4, true, 1},
		{59 * time.Second, 5, true, 0},
		{time.Second, 5, true, 1},
	} {
		now, api.got = now.Add(step.after), nil
		state := State{Generation: 1, Runs: true, Paused: step.paused, Deltas: &Deltas{Since: metav1.NewTime(time.Unix(1e9, 0)), Matched: step.delivered, Delivered: step.delivered}}
		if err := w.pass(t.Context(), map[*Object]State{web: state}); err != nil || len(api.got) != step.writes {
			t.Errorf("step %d: %d writes, %v, want %d", i, len(api.got), err, step.writes)
		}
		if step.writes > 0 && *w.written[web.Key].status.Deltas != *state.Deltas {
			t.Errorf("step %d: the status has %+v", i, w.written[web.Key].status.Deltas)
		}
	}
	// another run of the router has the status of the API server, with a time of another location
	known := *w.written[web.Key].status.Deltas
	known.Since = metav1.NewTime(known.Since.UTC())
	state := State{Generation: 1, Runs: true, Paused: true, Deltas: &known}
	web.Status, _ = statusOf(&state, &Status{}, metav1.NewTime(now))
	w.written, api.got = make(map[Key]write), nil
	if err := w.pass(t.Context(), map[*Object]State{web: state}); err != nil || len(api.got) != 0 {
		t.Errorf("the same counts are written again: %q, %v", api.got, err)
	}
}

// TestWriterErrors shows the errors of answers. A deleted object is none.
func TestWriterErrors(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusNotFound: "", http.StatusConflict: "",
		http.StatusForbidden:           "route/web -n ns: the API server forbids it: grant the verb patch on routes/status",
		http.StatusInternalServerError: "the API server answers 500",
	} {
		w, api := newWriter(t, status)
		object := &Object{Key: Key{Route, "ns", "web"}}
		err := w.pass(t.Context(), map[*Object]State{object: {}})
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) && err != nil {
			t.Errorf("%d: got %v", status, err)
		}
		if len(w.written) != 0 || len(api.got) != 1 {
			t.Errorf("%d: written %v, requests %q", status, w.written, api.got)
		}
	}
}

// TestWriterGoesOn: an object whose status the API server refuses, as one that is too large
// already, does not keep the router from writing that of the others. It is tried again later, or at
// once after the object has changed.
func TestWriterGoesOn(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		if strings.Contains(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	now := time.Unix(1e9, 0)
	w := NewWriter(&plugins.API{URL: server.URL, Client: server.Client()}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	states := make(map[*Object]State)
	for i := range 20 {
		for _, name := range []string{"bad", "good"} {
			states[&Object{Key: Key{Route, "ns", fmt.Sprint(name, i)}, UID: "1"}] = State{Generation: 1}
		}
	}
	requests := func() (bad, good int) {
		mu.Lock()
		defer mu.Unlock()
		for path, n := range asked {
			if strings.Contains(path, "/bad") {
				bad += n
			} else {
				good += n
			}
		}
		clear(asked)
		return bad, good
	}
	for _, c := range []struct {
		later     time.Duration
		bad, good int
	}{{0, 20, 20}, {0, 0, 0}, {2 * refusedPause, 20, 0}} {
		now = now.Add(c.later)
		if err := w.pass(t.Context(), states); (err != nil) != (c.bad > 0) {
			t.Errorf("%+v: got %v", c, err)
		}
		if bad, good := requests(); bad != c.bad || good != c.good {
			t.Errorf("%+v: %d requests for refused objects, %d for others", c, bad, good)
		}
	}
	for o, s := range states {
		s.Generation++
		states[o] = s
	}
	if err := w.pass(t.Context(), states); err == nil {
		t.Error("no error")
	}
	if bad, good := requests(); bad != 20 || good != 20 {
		t.Errorf("after a change: %d and %d requests", bad, good)
	}
}
