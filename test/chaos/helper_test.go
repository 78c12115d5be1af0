// Package chaos runs the router's binary on the sandbox, and kills, cuts off, damages and fills the
// things that it depends on. The number of kills and rounds depends on EFFORT, see test/effort.
package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const watchConfigMaps = `
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: all, from: maps, to: out}
`

// createMany makes ConfigMaps <prefix>-0, <prefix>-1, … with the value 1, several at a time, and
// returns their uids.
func createMany(t *testing.T, s *sandboxtest.Sandbox, ns, prefix string, n int) []string {
	t.Helper()
	uids := make([]string, n)
	each(t, n, func(i int) error {
		o, err := s.Dynamic().Resource(routertest.ConfigMaps).Namespace(ns).
			Create(t.Context(), routertest.ConfigMap(fmt.Sprintf("%s-%d", prefix, i), "1"), metav1.CreateOptions{})
		if err == nil {
			uids[i] = string(o.GetUID())
		}
		return err
	})
	return uids
}

// each calls f with 0 to n-1, several at a time.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	const workers = 8
	var running sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		running.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	running.Wait()
	must.Succeed(t, errors.Join(errs...))
}

// spend increases the resourceVersion of the cluster by at least n and returns the last one.
func spend(t *testing.T, maps routertest.Objects, name string, n int) int {
	t.Helper()
	for i := range n {
		maps.Change(name, fmt.Sprintf(`{"data":{"value":"%d-%d"}}`, i, rand.Uint64())) //nolint:gosec // no secret
	}
	return number(maps.Version(name))
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

// current returns the resourceVersion of the API server.
func current(t *testing.T, maps routertest.Objects) int {
	t.Helper()
	list, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
	must.Succeed(t, err)
	return number(list.GetResourceVersion())
}

// receiver is a webhook that keeps the events of each path in their order of arrival. A function
// decides the status of each request.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	treat func(*http.Request) int       // status
	lives map[string][]routertest.Event // by path
	n     int
}

func newReceiver(t *testing.T, treat func(*http.Request) int) *receiver {
	t.Helper()
	h := &receiver{treat: treat, lives: make(map[string][]routertest.Event)}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *receiver) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the router was killed
	}
	h.mu.Lock()
	treat := h.treat
	h.mu.Unlock()
	status := treat(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusOK {
		var e routertest.Event
		if err := json.Unmarshal(body, &e); err != nil {
			e.Type = "not JSON: " + err.Error()
		}
		h.lives[r.URL.Path] = append(h.lives[r.URL.Path], e)
		h.n++
	}
	w.WriteHeader(status)
}

func (h *receiver) now(treat func(*http.Request) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.treat = treat
}

func (h *receiver) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// life returns the events of a path in order.
func (h *receiver) life(path string) []routertest.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]routertest.Event(nil), h.lives[path]...)
}

// delivered returns the events of all paths, unordered.
func (h *receiver) delivered() (all []routertest.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, events := range h.lives {
		all = append(all, events...)
	}
	return all
}

func answer(status int) func(*http.Request) int {
	return func(*http.Request) int { return status }
}

// slowly accepts each request after a time.
func slowly(d time.Duration) func(*http.Request) int {
	return func(r *http.Request) int {
		select {
		case <-time.After(d):
			return http.StatusOK
		case <-r.Context().Done():
			return http.StatusServiceUnavailable
		}
	}
}

// valueOf returns the value of a ConfigMap in the data of an event: that of its object or of its
// oldObject.
func valueOf(t *testing.T, e routertest.Event, member string) string {
	t.Helper()
	var data map[string]json.RawMessage
	must.Succeed(t, json.Unmarshal(e.Data, &data))
	if len(data[member]) == 0 {
		return ""
	}
	var o unstructured.Unstructured
	must.Succeed(t, json.Unmarshal(data[member], &o.Object))
	value, _, _ := unstructured.NestedString(o.Object, "data", "value")
	return value
}

// incompressible returns a text of n bytes.
func incompressible(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))] //nolint:gosec // no secret
	}
	return string(text)
}

func TestMain(m *testing.M) { routertest.Main(m) }
