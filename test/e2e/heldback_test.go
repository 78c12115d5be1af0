package e2e

import (
	"bufio"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// follow runs `router runs ROUTE -w` until the end of the test, and returns a function that reports
// whether a line of its output has all texts.
func follow(t *testing.T, file, route string) (said func(texts ...string) bool) {
	t.Helper()
	cmd := routertest.Command("runs", route, "-w", "-config", file)
	cmd.Env = routertest.Environ(t)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	cmd.Stderr = cmd.Stdout
	must.Succeed(t, cmd.Start())
	var mu sync.Mutex
	var lines []string
	var reader sync.WaitGroup
	reader.Go(func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			mu.Lock()
			lines = append(lines, in.Text())
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reader.Wait()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("router runs %s -w printed\n%s", route, strings.Join(lines, "\n"))
		}
	})
	return func(texts ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range lines {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return true
			}
		}
		return false
	}
}

// TestHeldBack asks a running router why a route has not told of a change, and follows a route over
// a kill of the router, whose counts go on.
func TestHeldBack(t *testing.T) {
	// Guarantee: history
	// Guarantee: counts
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
history: {}
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: on, from: maps, when: object.data.value == "on", for: 1h, to: out}
  - {name: quiet, from: maps, ops: [updated], debounce: 1h, to: out}
  - {name: told, from: maps, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	said := follow(t, file, "told")
	maps.Make(routertest.ConfigMap("web", "on"))
	maps.Change("web", `{"data":{"value":"off"}}`)
	maps.Change("web", `{"data":{"value":"off","more":"x"}}`)
	routertest.Poll(t, "the last decision", func() bool { return said("updated", ns+"/web", "delivered") })
	ask := func(args ...string) string {
		t.Helper()
		out, code := routertest.Control(t, file, args...)
		if code != 0 {
			t.Errorf("router %q ends with %d: %s", args, code, out)
		}
		return out
	}
	inOrder := func(out string, texts ...string) {
		t.Helper()
		rest := out
		for _, text := range texts {
			_, after, found := strings.Cut(rest, text)
			if rest = after; !found {
				t.Errorf("%q is not in, or not behind the others of\n%s", text, out)
				return
			}
		}
	}
	inOrder(ask("why", "maps/web", "-n", ns, "-route", "on"), "added", "holds", "→ held by for until", "(entered)", "updated", "does not hold",
		"→ cancelled, the condition ended before for allowed a report (left)")
	inOrder(ask("history", "maps/web", "-n", ns), "updated", "→ quiet: held by debounce until", "at the latest")
	if out := ask("runs", "on"); !strings.Contains(out, "No decision of route on") {
		t.Errorf("runs without -held are\n%s", out)
	}
	inOrder(ask("runs", "on", "-held"), "left", "cancelled", "entered", "held by for until")

	counts := func(route string) (line string) {
		_, table, _ := strings.Cut(ask("status"), "MATCHED")
		for line := range strings.Lines(table) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == route {
				return strings.Join(fields[1:], " ")
			}
		}
		return ""
	}
	routertest.Poll(t, "the counts", func() bool { return strings.HasPrefix(counts("told"), "3 3 0 0 0 0 0 ") })
	before := counts("told")
	r.Saved(t)
	r.Kill(t)
	routertest.Poll(t, "the follower waits", func() bool { return said("waiting for it") })
	r = routertest.StartFile(t, file)
	r.Ready(t)
	if after := counts("told"); after != before {
		t.Errorf("the counts after a kill are %q, before it %q", after, before)
	}
	routertest.Poll(t, "the follower goes on", func() bool { return said("answers again") })
	maps.Make(routertest.ConfigMap("web2", "off"))
	routertest.Poll(t, "the next decision", func() bool { return said("added", ns+"/web2", "delivered") })
	if !strings.HasPrefix(counts("told"), "4 4 ") {
		t.Errorf("the counts are %q", counts("told"))
	}
}
