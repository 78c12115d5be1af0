package e2e

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// watching is a running `router get -w`.
type watching struct {
	lines *bufio.Scanner
	errs  strings.Builder
	end   func(interrupt bool) (code int)
}

// startWatch runs `router get -w -output-watch-events` on the router of a configuration.
func startWatch(t *testing.T, file string, args ...string) *watching {
	t.Helper()
	return watch(t, append(args, "-config", file)...)
}

// watch runs `router get -w -output-watch-events`.
func watch(t *testing.T, args ...string) *watching {
	t.Helper()
	w, cmd := &watching{}, routertest.Command(append([]string{"get", "-w", "-output-watch-events"}, args...)...)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	cmd.Stderr = &w.errs
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w.lines = bufio.NewScanner(out)
	w.end = func(interrupt bool) int {
		if interrupt {
			must.Report(t, cmd.Process.Signal(os.Interrupt))
		}
		for w.lines.Scan() {
			t.Errorf("one more line: %s", w.lines.Text())
		}
		_ = cmd.Wait() // the exit code says it
		return cmd.ProcessState.ExitCode()
	}
	return w
}

// expect reads the next lines.
func (w *watching) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, line := range want {
		if !w.lines.Scan() || w.lines.Text() != line {
			t.Fatalf("got %q, want %q: %v", w.lines.Text(), line, w.lines.Err())
		}
	}
}

// TestGetWatch follows objects of a cluster: all, those with a label, those of an index, and a
// Secret. An interrupt ends a watch without an error, and a reload ends it with one.
func TestGetWatch(t *testing.T) {
	// Guarantee: get-watch, api-no-secrets
	t.Parallel()
	s, one := sandboxtest.StartNamespace(t)
	maps, secrets := routertest.Use(t, s, routertest.ConfigMaps, one), routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, one)
	maps.Make(routertest.ConfigMap("m0", "0", "app=web"))
	maps.Make(routertest.ConfigMap("m1", "1"))
	secrets.Make(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "data": map[string]any{"token": "aHVudGVyMg=="},
	}})
	config := fmt.Sprintf(getConfig, one, s.Namespace(t))
	file := routertest.InstallAPI(t, s.Kubeconfig(), config)
	r := routertest.StartFile(t, file)
	r.Ready(t)
	const names = "name"
	all, labelled := startWatch(t, file, "maps", "-o", names), startWatch(t, file, "maps", "-o", names, "-l", "app=web")
	indexed := startWatch(t, file, "maps", "-o", names, "-index", "byValue=1")
	secret := startWatch(t, file, "secret", "s", "-o", "jsonpath={.type} {.object.data.token}")
	m0, m1 := one+"/m0", one+"/m1"
	all.expect(t, "ADDED "+m0, "ADDED "+m1)
	labelled.expect(t, "ADDED "+m0)
	indexed.expect(t, "ADDED "+m1)
	secret.expect(t, "ADDED (redacted)")
	if out, code := routertest.Control(t, file, "get", "maps", "-w"); code != 1 || !strings.Contains(out, "there are 4 streams of objects already") {
		t.Errorf("exit code %d, %s", code, out)
	}

	maps.Change("m0", `{"data":{"value":"1"}}`)
	maps.Change("m0", `{"metadata":{"labels":{"app":null}}}`)
	maps.Change("m1", `{"data":{"value":"2"}}`)
	maps.Remove("m0")
	secrets.Change("s", `{"data":{"token":"aHVudGVyMw=="}}`)
	secrets.Remove("s")
	all.expect(t, "MODIFIED "+m0, "MODIFIED "+m0, "MODIFIED "+m1, "DELETED "+m0)
	labelled.expect(t, "MODIFIED "+m0, "DELETED "+m0)
	indexed.expect(t, "ADDED "+m0, "MODIFIED "+m0, "DELETED "+m1, "DELETED "+m0)
	secret.expect(t, "MODIFIED (redacted)", "DELETED (redacted)")
	for _, w := range []*watching{labelled, indexed, secret} {
		if code := w.end(true); code != 0 || w.errs.Len() > 0 {
			t.Errorf("exit code %d after an interrupt: %s", code, &w.errs)
		}
	}

	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	r.Reload(t, file, strings.Replace(string(text), "byValue: object.data.value", "byFirst: object.metadata.name", 1), true)
	if code := all.end(false); code != 1 || !strings.Contains(all.errs.String(), "the configuration was reloaded: start again") {
		t.Errorf("exit code %d after a reload: %s", code, &all.errs)
	}
	last := startWatch(t, file, "maps", "-o", names, "-index", "byFirst=m1")
	last.expect(t, "ADDED "+m1)
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := last.end(false); code != 1 || !strings.Contains(last.errs.String(), "the router closed the stream") {
		t.Errorf("exit code %d after the router's stop: %s", code, &last.errs)
	}
}
