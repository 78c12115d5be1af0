package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestBackupRestored makes a backup of a running router and restores it: the router resumes at the
// position of the backup, so the changes after it come again, with the same ids, and no others.
func TestBackupRestored(t *testing.T) {
	// Guarantee: backup
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, to: out}]
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	for _, name := range []string{"kept", "gone"} {
		maps.Make(routertest.ConfigMap(name, "1"))
	}
	r.Expect(t, "all added "+ns+"/kept", "all added "+ns+"/gone")
	r.Saved(t)
	backup := filepath.Join(t.TempDir(), "backup.db")
	if out, code := routertest.Control(t, file, "state", "backup", backup); code != 0 || !strings.Contains(out, "Wrote "+backup) || !strings.Contains(out, "Not in the backup: the history") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	maps.Make(routertest.ConfigMap("new", "1"))
	maps.Remove("gone")
	again := []string{"all added " + ns + "/new", "all deleted " + ns + "/gone"}
	before := r.Expect(t, append(again, "all added "+ns+"/kept", "all added "+ns+"/gone")...)
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	state := filepath.Join(filepath.Dir(file), "state")
	past := filepath.Join(t.TempDir(), "history")
	if out, code := routertest.Control(t, file, "state", "backup", "-history", past, past+".db"); code != 0 || !strings.Contains(out, "Wrote "+past+": 1 segment") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	text, err := os.ReadFile(backup)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(state, "state.db"), text, 0o600))
	must.Succeed(t, os.RemoveAll(filepath.Join(state, "history")))
	must.Succeed(t, os.CopyFS(filepath.Join(state, "history"), os.DirFS(past)))
	r = routertest.StartFile(t, file)
	r.Expect(t, again...)
	maps.Make(routertest.ConfigMap("last", "1"))
	after := r.Expect(t, append(again, "all added "+ns+"/last")...)
	routertest.Exactly(t, routertest.Summary(after), append(again, "all added "+ns+"/last"))
	for _, e := range after {
		known := slices.ContainsFunc(before, func(b routertest.Event) bool { return b.ID == e.ID })
		if known == strings.HasSuffix(e.Subject, "/last") {
			t.Errorf("%s has the id %s, which is known: %v", e, e.ID, known)
		}
	}
	// The copy of the history is newer than that of the state: what came again is there once.
	out, code := routertest.Control(t, file, "history", "maps/gone", "-n", ns)
	if code != 0 || strings.Count(out, " added ") != 1 || strings.Count(out, " deleted ") != 1 {
		t.Errorf("the history: exit code %d: %s", code, out)
	}
	r.Stop(t)
	out, code = routertest.Control(t, file, "state", "inspect")
	if code != 0 || !strings.Contains(out, "lost") || strings.Contains(out, "damage") || !strings.Contains(out, " segments\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, code = routertest.Control(t, file, "state", "export", "-history")
	if code != 0 || strings.Count(out, `"type":"change"`) < 6 || strings.Contains(out, `"after":`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}
