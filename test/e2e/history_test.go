package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/backtest"
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
	// Guarantee: history
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
	r.Saved(t) // otherwise changes come again after the start
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
	records, _, err := reader.Object(t.Context(), "maps", event.Key{Namespace: ns, Name: "web"}, history.Span{}, 1000)
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
	if !slices.Equal(changes, want) {
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

// TestHistoryRefused starts a router whose history cannot be opened: it delivers, is ready and says
// so, and records once it can.
func TestHistoryRefused(t *testing.T) {
	// Guarantee: history
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: all, from: maps, to: out}
`, ns))
	folder := filepath.Join(filepath.Dir(file), "state", history.Folder)
	must.Succeed(t, os.MkdirAll(filepath.Dir(folder), 0o700))
	must.Succeed(t, os.WriteFile(folder, nil, 0o600)) // in the place of the folder
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps.Make(routertest.ConfigMap("web", "1"))
	r.Wait(t, "the change", func(events []routertest.Event) bool { return len(events) == 1 })
	const said = "changes and decisions are not recorded, or not all of them; deltas are delivered: the folder cannot be opened"
	if code, body := r.Get(t, "/readyz"); code != http.StatusOK || !strings.Contains(body, "[-]history: not ok") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if out, _ := routertest.Control(t, file, "status"); !strings.Contains(out, said) {
		t.Errorf("status says\n%s", out)
	}
	if n := strings.Count(r.Log(), "records of the history cannot be written and are lost"); n == 0 {
		t.Error("the log does not say it")
	}
	routertest.Poll(t, "lost records", func() bool { return r.Metric(t, `deltarouter_history_lost_total{reason="refused"}`) >= 2 })
	must.Succeed(t, os.Remove(folder))
	maps.Change("web", `{"data":{"value":"2"}}`)
	r.Wait(t, "the second change", func(events []routertest.Event) bool { return len(events) == 2 })
	routertest.Poll(t, "the second change in the history", func() bool {
		out, code := routertest.Control(t, file, "history", "maps/web", "-n", ns)
		return code == 0 && strings.Contains(out, `data.value: "1" → "2"`) && strings.Contains(out, "all: delivered")
	})
}

// TestHistory asks a running router what happened to an object, what it was, and what a route did.
func TestHistory(t *testing.T) {
	// Guarantee: history
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("web", "1"))
	maps.Make(routertest.ConfigMap("still", "7"))
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(refusing.Close)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
history: {}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: told, from: maps, ops: [updated, deleted], to: out}
  - {name: refused, from: maps, ops: [updated], to: hook}
  - {name: never, from: maps, filter: object.metadata.name == "web" && object.data.value == "9", to: out}
`, refusing.URL, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps.Change("web", `{"data":{"value":"2","more":"x"}}`)
	r.Wait(t, "the change", func(events []routertest.Event) bool { return len(events) == 1 })
	between := time.Now()
	maps.Remove("web")
	r.Wait(t, "the delete", func(events []routertest.Event) bool { return len(events) == 2 })
	routertest.Poll(t, "three decisions", func() bool { return r.Metric(t, `deltarouter_history_records_total{kind="decision"}`) == 3 })
	ask := func(code int, args ...string) string {
		t.Helper()
		out, got := routertest.Control(t, file, args...)
		if got != code {
			t.Errorf("router %q ends with %d: %s", args, got, out)
		}
		return out
	}
	contains := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			before, after, found := strings.Cut(out, text)
			if out = after; !found {
				t.Errorf("%q is not in, or not behind the others of\n%s", text, before)
				return
			}
		}
	}
	contains(ask(0, "history", "maps/web", "-n", ns), "added", "as the router first saw it", "updated", "data.more: - → \"x\"", `data.value: "1" → "2"`,
		"→ told: delivered", "1 event, to out", "→ refused: dead-lettered", "to hook", "deleted", "→ told: delivered")
	contains(ask(0, "history", "cm/web", "-n", ns, "-at", between.Format(time.RFC3339Nano)), "data:", "more: x", `value: "2"`)
	contains(ask(0, "history", "maps/still", "-n", ns, "-at", between.Format(time.RFC3339Nano), "-o", "json"), `"value": "7"`)
	contains(ask(1, "history", "maps/web", "-n", ns, "-at", "0s"), "did not exist")
	contains(ask(0, "history", "maps/none", "-n", ns), "No change of maps "+ns+"/none is recorded")
	contains(ask(0, "runs", "told"), "TIME", "deleted", ns+"/web", "delivered", "updated", ns+"/web", "delivered")
	contains(ask(0, "runs", "refused", "-failed"), "updated", ns+"/web", "dead-lettered")
	contains(ask(0, "runs", "told", "-failed"), "No decision of route told")
	contains(ask(0, "get", "maps", "-n", ns, "-at", between.Format(time.RFC3339Nano), "-o", "json"), `"name":"still"`, `"value":"7"`, `"name":"web"`, `"value":"2"`)
	contains(ask(1, "get", "maps/web", "-n", ns, "-at", "1d"), "the history begins at")
	later := time.Now().Format(time.RFC3339Nano)
	contains(ask(0, "get", "maps", "-n", ns, "-at", later, "-o", "name"), ns+"/still")
	contains(ask(1, "get", "maps/web", "-n", ns, "-at", later), "had no object")
	maps.Change("still", `{"data":{"value":"8"}}`)
	r.Wait(t, "the change", func(events []routertest.Event) bool { return len(events) == 3 })
	contains(ask(0, "get", "maps", "-n", ns, "-at", time.Now().Format(time.RFC3339Nano), "-diff", between.Format(time.RFC3339Nano)),
		"changed "+ns+"/still", `data.value: "7" → "8"`, "deleted "+ns+"/web")
	contains(ask(2, "get", "maps", "-diff", "1h"), "-diff needs -at")
	contains(ask(2, "get", "maps", "-at", "1h", "-w"), "-at needs a source, and goes with NAME")
	contains(ask(1, "runs", "tolt"), `there is no route "tolt"`, "told")
	contains(ask(2, "history", "web"), "RESOURCE/NAME")

	contains(ask(0, "why", "maps/web", "-n", ns, "-route", "told"), "added", "no match: existing: skip", "updated", "match", "→ delivered", "deleted", "match", "→ delivered")
	contains(ask(0, "why", "maps/web", "-n", ns, "-route", "never", "-at", between.Format(time.RFC3339Nano)), "updated", `no match: object.data.value == "9"`, "config.yaml:")
	contains(ask(0, "why", "maps/none", "-n", ns, "-route", "told"), "the source has no such object")
	contains(ask(1, "why", "maps/web", "-n", ns, "-route", "tolt"), `there is no route "tolt"; did you mean "told"?`)
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	r.Reload(t, file, strings.Replace(string(text), `"9"`, `"2"`, 1), true)
	contains(ask(0, "why", "maps/web", "-n", ns, "-route", "never"), "the route was another one: changes of that time are judged by the present one", "updated", "match")
}

// TestBacktest runs the rules of a running router on its history, and gets the events that it
// delivered; and other rules, whose differences it shows.
func TestBacktest(t *testing.T) {
	// Guarantee: backtest
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for _, name := range []string{"old", "still", "leaves"} {
		maps.Make(routertest.ConfigMap(name, "1"))
	}
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
history: {}
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: big, from: maps, filter: int(object.data.value) > 5, emit: '{"value": object.data.value}', to: out}
  - {name: ends, from: maps, ops: [deleted], to: [out, {route: next}]}
  - {name: next, emit: '{"after": event.subject}', to: out}
  - {name: seven, from: maps, when: object.data.value == "7", to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	var events []routertest.Event
	// Each change waits for the events of the one before, so that none are coalesced.
	for _, step := range []struct {
		change func()
		events int // afterwards
	}{
		{func() { maps.Change("old", `{"data":{"value":"6"}}`) }, 1},
		{func() { maps.Change("old", `{"data":{"value":"7"}}`) }, 3},
		{func() { maps.Change("old", `{"data":{"value":"2"}}`) }, 4},
		{func() { maps.Make(routertest.ConfigMap("new", "7")) }, 6},
		{func() { maps.Remove("leaves") }, 8},
		{func() { maps.Change("old", `{"data":{"value":"9"}}`) }, 9},
	} {
		step.change()
		r.Wait(t, "the events", func(all []routertest.Event) bool {
			events = slices.Clone(all)
			return len(all) >= step.events
		})
	}
	r.Saved(t)

	backtested := func(code int, args ...string) (report backtest.Report) {
		t.Helper()
		out, got := routertest.Control(t, file, append([]string{"backtest", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &report); err != nil || got != code {
			t.Fatalf("exit code %d, want %d, %v: %s", got, code, err, out)
		}
		return report
	}
	saved := filepath.Join(t.TempDir(), "past.rec")
	var got, want []string
	describe := func(route, op, subject, id string, data json.RawMessage) string {
		if route == "seven" { // its ids and data have the time since which the condition holds
			return strings.Join([]string{route, op, subject}, " ")
		}
		var text bytes.Buffer
		must.Succeed(t, json.Compact(&text, data))
		return strings.Join([]string{route, op, subject, id, text.String()}, " ")
	}
	report := backtested(0, "-save", saved)
	if len(report.Notes) == 0 || !strings.Contains(report.Notes[0], "the history begins at") {
		t.Errorf("the notes are %q", report.Notes)
	}
	for _, e := range report.Events {
		got = append(got, describe(e.Route, e.Type, e.Subject, e.ID, e.Data))
	}
	for _, e := range events {
		want = append(want, describe(e.Route, e.Type, e.Subject, e.ID, e.Data))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("backtested\n%s\ndelivered\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	other := filepath.Join(t.TempDir(), "other.yaml")
	must.Succeed(t, os.WriteFile(other, []byte(strings.Replace(string(text), "> 5", "> 1", 1)), 0o600))
	report = backtested(0, saved, "-against", other, "-route", "big")
	if s := report.Routes[0]; s.Told != 4 || s.Before != 5 || s.New != 0 || s.Gone != 1 {
		t.Errorf("got %+v", report.Routes)
	}
}

// TestShadow runs a route with shadow beside a live one: its sink, and the route behind it, get
// nothing, and the history has what they would have got. Without shadow it goes on with its state.
func TestShadow(t *testing.T) {
	// Guarantee: shadow
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
history: {}
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: live, from: maps, when: object.data.value == "7", to: out}
  - {name: tried, shadow: true, from: maps, when: int(object.data.value) > 5, to: [out, {route: behind}]}
  - {name: behind, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps.Make(routertest.ConfigMap("six", "6"))
	maps.Make(routertest.ConfigMap("seven", "7"))
	r.Wait(t, "the live event", func(events []routertest.Event) bool { return len(events) == 1 })
	routertest.Poll(t, "the shadow", func() bool {
		return r.Metric(t, `deltarouter_route_deltas_total{result="shadowed",route="tried"}`) == 2
	})
	runs, code := routertest.Control(t, file, "runs", "tried")
	if n := strings.Count(runs, "shadowed"); code != 0 || n != 2 || !strings.Contains(runs, "to out, to route:behind") {
		t.Errorf("%d decisions are shadowed:\n%s", n, runs)
	}
	if status, _ := routertest.Control(t, file, "status"); !strings.Contains(status, "tried (shadow)") {
		t.Errorf("the status does not name the shadow:\n%s", status)
	}
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	r.Reload(t, file, strings.Replace(string(text), "shadow: true, ", "", 1), true)
	maps.Change("six", `{"data":{"value":"2"}}`)
	want := []string{"behind left " + ns + "/six", "live entered " + ns + "/seven", "tried left " + ns + "/six"}
	r.Wait(t, "the end of the condition, and nothing else", func(events []routertest.Event) bool {
		got := routertest.Summary(events)
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}
