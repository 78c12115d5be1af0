package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// renamedChain has an upstream route with two targets: a route that is renamed and keeps its id,
// and a sink that may be unavailable. The downstream route has room for two deltas, so that others
// are pending at the upstream route.
const renamedChain = `
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  end: {webhook: {url: %[2]q}}
  beside: {webhook: {url: %[3]q}}
routes:
  - name: upstream
    from: maps
    filter: object.metadata.name.startsWith("m-")
    emit: '{"name": object.metadata.name}'
    to: [{route: %[4]s}, beside]
    retry: {backoff: 10ms, max: 50ms}
  - {name: %[4]s, id: the-id, queue: {memory: 2, disk: 0}, to: end, retry: {backoff: 10ms, max: 50ms}}
`

// TestChainRouteRenamed renames a downstream route, with the same id, while deltas are pending at
// it and at its upstream route. No event may be lost or repeated at either target. Its dead letters
// must have the new name, and the checkpoint must have the route by its id.
func TestChainRouteRenamed(t *testing.T) {
	// Guarantee: reload-backlog
	t.Parallel()
	s := sandboxtest.Start(t)
	for _, by := range []string{"reload", "restart", "kill"} {
		t.Run(by, func(t *testing.T) {
			ns := s.Namespace(t)
			end, beside := newHook(t), newHook(t)
			config := func(name string) string { return fmt.Sprintf(renamedChain, ns, end.URL, beside.URL, name) }
			file := routertest.InstallAPI(t, s.Kubeconfig(), config("old"))
			r := routertest.StartFile(t, file)
			r.Ready(t)
			r.Saved(t) // otherwise a restart would treat existing objects as old
			maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
			var want []string
			change := func(names ...string) {
				for _, name := range names {
					maps.Make(routertest.ConfigMap("m-"+name, "1"))
					want = append(want, "m-"+name)
				}
			}
			pending := func(route string, n float64) {
				t.Helper()
				routertest.Poll(t, fmt.Sprintf("%v deltas to be pending at %s", n, route), func() bool {
					return r.Metric(t, fmt.Sprintf(`deltarouter_route_queue_deltas{route=%q}`, route)) == n
				})
			}

			end.answer(http.StatusBadRequest)
			change("dead")
			routertest.Poll(t, "the dead letter", func() bool { return strings.Contains(dlq(t, file, "list", "-route", "old"), "m-dead") })
			end.answer(http.StatusServiceUnavailable)
			beside.answer(http.StatusServiceUnavailable)
			// one target has them and the other does not: they are pending at both routes
			change("0", "1")
			pending("old", 2)
			pending("upstream", 2)
			change("2", "3", "4") // there is no room for them
			pending("upstream", 5)

			r = rename(t, r, file, by, config("new"))
			pending("upstream", 5)
			pending("new", 2)
			pending("old", 0)
			change("5")
			pending("upstream", 6)
			r.Saved(t)
			if letters := dlq(t, file, "list", "-route", "new"); !strings.Contains(letters, "m-dead") {
				t.Errorf("the dead letters are\n%s", letters)
			}

			end.answer(http.StatusOK)
			beside.answer(http.StatusOK)
			pending("upstream", 0)
			pending("new", 0)
			dlq(t, file, "retry", "-route", "new")
			pending("new", 0)
			routertest.Poll(t, "no dead letter", func() bool { return dlq(t, file, "list", "-o", "json") == "[]\n" })
			r.Saved(t)
			change("last")
			pending("upstream", 0)
			pending("new", 0)
			told := func(h *hook) (names []string) {
				for _, e := range h.chainEvents(t) {
					names = append(names, e.Data.Name)
				}
				return names
			}
			for what, h := range map[string]*hook{"end": end, "beside": beside} {
				routertest.Poll(t, "all of it at the "+what, func() bool { return slices.Contains(told(h), "m-last") })
				routertest.Exactly(t, told(h), want)
			}
			for _, e := range end.chainEvents(t) {
				if e.Route != "new" {
					t.Errorf("%s came from route %s", e.Data.Name, e.Route)
				}
			}
			if code := r.Stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// rename gives the router another configuration, and checks the state file if the router ends.
func rename(t *testing.T, r *routertest.Router, file, by, config string) *routertest.Router {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	head, _, _ := strings.Cut(string(text), "\nsources:")
	switch by {
	case "reload":
		r.Reload(t, file, head+config, true)
		if strings.Contains(r.Log(), "not reloaded") {
			t.Error("the reload was refused")
		}
		return r
	case "restart":
		r.Stop(t)
	case "kill":
		r.Saved(t)
		r.Kill(t)
	}
	keyedByID(t, filepath.Join(filepath.Dir(file), "state", "state.db"))
	routertest.Exchange(t, file, head+config)
	r = routertest.StartFile(t, file)
	r.Ready(t)
	return r
}

// keyedByID checks that a state file has the backlog of the downstream route, and its dead letter,
// under its id.
func keyedByID(t *testing.T, state string) {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: state})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, db.Close()) }()
	for route, want := range map[string]int{"the-id": 2, "old": 0, "upstream": 5} {
		backlog, err := db.LoadRoute(route, checkpoint.Part{}, func(string) *event.Resource { return nil })
		must.Succeed(t, err)
		if len(backlog) != want {
			t.Errorf("%d deltas are saved for %s, want %d", len(backlog), route, want)
		}
	}
	letters, err := db.Letters(checkpoint.LettersConfig{Max: 10, MaxAge: 1 << 60})
	must.Succeed(t, err)
	for route, want := range map[string]int{"the-id": 1, "old": 0} {
		if n := len(letters.IDs(route, 0, 0)); n != want {
			t.Errorf("%d dead letters are saved for %s, want %d", n, route, want)
		}
	}
}
