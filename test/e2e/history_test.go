package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestHistoryRecorded kills a router and starts it again, and compares its history with the changes
// that the API server has answered, and with what the receiver got.
func TestHistoryRecorded(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
history: {}
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: all, from: maps, filter: object.metadata.name == "web", to: out}
  - {name: limited, from: maps, filter: object.metadata.name == "web" && op == "updated", limit: {every: 1h}, to: out}
  - {name: never, from: maps, filter: object.metadata.name == "other", to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	versions := []string{maps.Make(routertest.ConfigMap("web", "1")).GetResourceVersion()}
	for _, value := range []string{"2", "3"} {
		versions = append(versions, maps.Change("web", `{"data":{"value":"`+value+`"}}`))
	}
	r.Wait(t, "the changes", func(events []routertest.Event) bool { return len(events) == 4 })
	routertest.Poll(t, "the history", func() bool {
		return r.Metric(t, `deltarouter_history_records_total{kind="change"}`) >= 3 && r.Metric(t, `deltarouter_history_records_total{kind="decision"}`) >= 5
	})
	r.Kill(t)
	versions = append(versions, maps.Change("web", `{"data":{"value":"4"}}`)) // while it is down
	r = routertest.StartFile(t, file)
	r.Wait(t, "the change while it was down", func(events []routertest.Event) bool { return len(events) >= 1 })
	maps.Remove("web")
	r.Wait(t, "the delete", func(events []routertest.Event) bool { return events[len(events)-1].Type == "io.deltarouter.deleted" })
	r.Stop(t)

	reader, err := history.OpenFolder(filepath.Join(filepath.Dir(file), "state", history.Folder))
	must.Succeed(t, err)
	reader.Damaged = func(path string, err error) { t.Errorf("%s: %v", path, err) }
	records, err := reader.Object(t.Context(), "maps", event.Key{Namespace: ns, Name: "web"}, history.Span{})
	must.Succeed(t, err)
	value := func(state string) string {
		if state == "" {
			return "-"
		}
		return rawjson.Value(state).Get("data").Get("value").Str()
	}
	var changes, decisions []string
	for _, record := range records {
		switch c := record.(type) {
		case *history.Change:
			version := c.Version
			if c.After == "" { // of the delete itself, which the test does not know
				version = "-"
			}
			changes = append(changes, fmt.Sprintf("%s %s %s→%s", c.Op, version, value(c.Before), value(c.After)))
		case *history.Decision:
			step := ""
			for _, s := range c.Steps {
				step += fmt.Sprintf(" %s to %s %s", s.Kind, s.Name, s.Err)
			}
			decisions = append(decisions, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", c.Route, c.Op, c.Outcome, step)))
		}
	}
	want := []string{
		"added " + versions[0] + " -→1", "updated " + versions[1] + " 1→2", "updated " + versions[2] + " 2→3", "updated " + versions[3] + " 3→4", "deleted - 4→-",
	}
	if !slices.Equal(slices.Compact(changes), want) { // a change after the last cut comes again
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(changes, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(decisions)
	wantDecisions := []string{
		"all added delivered deliver to out", "all deleted delivered deliver to out", "all updated delivered deliver to out",
		"limited updated delivered deliver to out", "limited updated suppressed",
	}
	if got := slices.Compact(decisions); !slices.Equal(got, wantDecisions) {
		t.Errorf("decisions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantDecisions, "\n"))
	}
	begins, err := reader.Begins(t.Context(), history.Span{})
	if err != nil || len(begins) != 2 || len(begins[1].Routes) != 3 {
		t.Errorf("begins are %v, %v", begins, err)
	}
}
