package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// long is the number in the environment variable CHAOS, by which the tests of this kind multiply what they do; 0 if it is not set.
func long(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("CHAOS"))
	if err != nil {
		return 0
	}
	return n
}

func scaled(t *testing.T, short int) int {
	t.Helper()
	return short * max(long(t), 1)
}

// createMany makes ConfigMaps <prefix>-0, <prefix>-1, … with the value 1, several at a time, and returns their uids.
func createMany(t *testing.T, s *sandboxtest.Sandbox, ns, prefix string, n int) []string {
	t.Helper()
	uids := make([]string, n)
	each(t, n, func(i int) error {
		o, err := s.Dynamic().Resource(configMaps).Namespace(ns).
			Create(t.Context(), configMap(fmt.Sprintf("%s-%d", prefix, i), "1"), metav1.CreateOptions{})
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
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// spend moves the resourceVersion of the cluster on by at least n, and returns the last one.
func spend(t *testing.T, maps objects, name string, n int) int {
	t.Helper()
	for i := range n {
		maps.patch(name, fmt.Sprintf(`{"data":{"value":"%d-%d"}}`, i, rand.Uint64())) //nolint:gosec // no secret
	}
	return number(maps.version(name))
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

// current returns the resourceVersion of the API server.
func current(t *testing.T, maps objects) int {
	t.Helper()
	list, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return number(list.GetResourceVersion())
}

// saved waits until everything that the router has taken so far is on disk: for the end of a cut that began after the call, which is
// the second to end.
func (r *router) saved(t *testing.T) {
	t.Helper()
	for range 2 {
		r.cutAge = 0
		poll(t, "a cut to be written", func() bool { return r.cutSince(t) })
	}
}

// relists returns how often, by the router's own count, anything was listed again.
func (r *router) relists(t *testing.T) (n float64) {
	t.Helper()
	_, body := r.get(t, "/metrics")
	for line := range strings.SplitSeq(body, "\n") {
		if rest, ok := strings.CutPrefix(line, "deltarouter_relists_total{"); ok {
			v, _ := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64)
			n += v
		}
	}
	return n
}

// ended waits for the end of a router that ends by itself, and returns its exit code.
func (r *router) ended(t *testing.T) int {
	t.Helper()
	done := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := r.cmd.Process.Wait()
		done <- state
	}()
	select {
	case state := <-done:
		return state.ExitCode()
	case <-time.After(patience):
		t.Fatal("the router did not end")
		return 0
	}
}

// runToEnd runs a router that is expected not to start, and returns its exit code and its log.
func runToEnd(t *testing.T, file string) (code int, log string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-config", file)
	stop := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// receiver is a webhook that keeps the events in the order in which it took them, apart for each path, and treats requests as it is
// told to.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	treat func(*http.Request) int // status
	lives map[string][]cloudEvent // by path
	n     int
}

func newReceiver(t *testing.T, treat func(*http.Request) int) *receiver {
	t.Helper()
	h := &receiver{treat: treat, lives: make(map[string][]cloudEvent)}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *receiver) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the router died
	}
	h.mu.Lock()
	treat := h.treat
	h.mu.Unlock()
	status := treat(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusOK {
		var e cloudEvent
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

// life returns what came under a path, in order.
func (h *receiver) life(path string) []cloudEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]cloudEvent(nil), h.lives[path]...)
}

// delivered returns what came under all paths, in no order.
func (h *receiver) delivered() (all []cloudEvent) {
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

// slowly takes everything, after a while.
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

// exactly reports events that are missing and events that are too many.
func exactly(t *testing.T, got, want []string) {
	t.Helper()
	left := make(map[string]int)
	for _, w := range want {
		left[w]++
	}
	for _, g := range got {
		left[g]--
	}
	for what, n := range left {
		switch {
		case n > 0:
			t.Errorf("not delivered: %s", what)
		case n < 0:
			t.Errorf("delivered, although nothing of the kind happened: %s", what)
		}
	}
}

// valueOf returns the value of a ConfigMap in the data of an event: of its object, or of its oldObject.
func valueOf(t *testing.T, e cloudEvent, member string) string {
	t.Helper()
	var data map[string]json.RawMessage
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	if len(data[member]) == 0 {
		return ""
	}
	var o unstructured.Unstructured
	if err := json.Unmarshal(data[member], &o.Object); err != nil {
		t.Fatal(err)
	}
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
