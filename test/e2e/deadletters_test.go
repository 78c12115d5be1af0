package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// dlq runs router dlq, which must succeed, and returns its output.
func dlq(t *testing.T, file string, args ...string) string {
	t.Helper()
	cmd := routertest.Command(append([]string{"dlq", args[0], "-config", file}, args[1:]...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("router dlq %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestDeadLetters shows that rejected deltas are listed, survive a restart and a kill, and are
// delivered after the webhook is repaired.
func TestDeadLetters(t *testing.T) {
	// Guarantee: dead-letters-kept, dead-letter-retry
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0", api: "unix:%s"}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: both, from: maps, to: [out, hook], retry: {backoff: 10ms, max: 50ms, attempts: 1}}
`, s.Kubeconfig(), filepath.Join(dir, "state"), filepath.Join(dir, "api.sock"), ns, h.URL)
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	h.answer(http.StatusBadRequest)
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for _, name := range []string{"kept", "changed", "gone", "dropped"} {
		maps.Make(routertest.ConfigMap(name, "1"))
		routertest.Poll(t, "the letter", func() bool { return strings.Contains(dlq(t, file, "list"), "added maps "+ns+"/"+name) })
	}
	for _, end := range []string{"stopped", "killed"} {
		if end == "stopped" {
			if code := r.Stop(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		} else {
			r.Saved(t) // otherwise the deltas would be repeated and rejected again
			r.Kill(t)
		}
		r = routertest.StartFile(t, file)
		r.Ready(t)
		if list := dlq(t, file, "list", "-route", "both"); strings.Count(list, "\n") != 5 || !strings.Contains(list, "400") {
			t.Fatalf("%s: the letters are\n%s", end, list)
		}
	}
	if shown := dlq(t, file, "show", "1"); !strings.Contains(shown, `"value": "1"`) {
		t.Errorf("the object is not shown:\n%s", shown)
	}

	// After the repair only the sink that refused the event gets it, flagged.
	h.answer(http.StatusOK)
	out := len(r.Events())
	dlq(t, file, "retry", "1")
	routertest.Poll(t, "the redelivery", func() bool { return h.count() == 1 })
	dlq(t, file, "drop", "4")
	routertest.Poll(t, "the letter to be gone", func() bool { return strings.Count(dlq(t, file, "list"), "\n") == 3 })
	first := h.events(t)[0]
	if first.Subject != ns+"/kept" || first.Type != "io.deltarouter.added" || !first.Redelivered {
		t.Errorf("got %+v", first)
	}
	if got := r.Events(); len(got) != out {
		t.Errorf("the sink that had it got it again: %q", routertest.Summary(got[out:]))
	}

	// The present state of the objects.
	maps.Change("changed", `{"data":{"value":"2"}}`)
	maps.Remove("gone")
	routertest.Poll(t, "the changes", func() bool { return h.count() == 3 })
	dlq(t, file, "retry", "-route", "both", "-current")
	routertest.Poll(t, "the redelivery", func() bool { return h.count() == 4 })
	last := h.events(t)[3]
	if last.Subject != ns+"/changed" || last.Type != "io.deltarouter.updated" || !last.Redelivered || !strings.Contains(string(last.Data), `"2"`) {
		t.Errorf("got %+v", last)
	}
	routertest.Poll(t, "the list to be empty", func() bool { return dlq(t, file, "list", "-o", "json") == "[]\n" })
}

// hookEvent is an event at the webhook.
type hookEvent struct {
	Type, Subject string
	Redelivered   bool
	Data          json.RawMessage
}

func (h *hook) events(t *testing.T) []hookEvent {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	events := make([]hookEvent, len(h.got))
	for i, text := range h.got {
		must.Succeed(t, json.Unmarshal([]byte(text), &events[i]))
	}
	return events
}
