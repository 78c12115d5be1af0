package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/backtest"
	"github.com/deltarouter/deltarouter/test/must"
)

const backtestRules = `version: 1
cluster: {name: there}
sources:
  pods: {resource: v1/pods}
sinks: {hook: {webhook: {url: "http://127.0.0.1:1"}}, log: {webhook: {url: "http://127.0.0.1:1"}}}
routes:
  - {name: down, from: pods, when: object.status.phase == "Failed", for: 10m, to: [hook, log], emit: '{"name": object.metadata.name, "op": op}'}
  - {name: seen, from: pods, filter: op == "updated", to: {route: last}, emit: '{"name": object.metadata.name}'}
  - {name: last, to: hook, filter: event.data.name != "c"}
`

// aPod returns a line of a recording.
func aPod(at, op, name, version, phase string) string {
	return `{"at":` + at + `,"op":"` + op + `","source":"pods","kind":"Pod","object":{"metadata":{"namespace":"shop","name":"` + name + `","uid":"u-` + name +
		`","resourceVersion":"` + version + `"},"status":{"phase":"` + phase + `"}}}`
}

// backtestLines begin on a Friday at 17:00 UTC.
var backtestLines = []string{
	`{"format":"deltarouter-recording","version":1,"cluster":"here","time":"2026-01-02T17:00:00Z","sources":{"pods":{"resource":"v1/pods"}},"history":{"begin":"2026-01-02T17:00:00Z","lost":2}}`,
	aPod("0", "existing", "a", "1", "Failed"), aPod("0", "existing", "b", "2", "Running"), `{"at":0,"op":"synced","source":"pods"}`,
	aPod("1200", "updated", "b", "3", "Failed"), // 17:20, told at 17:30
	aPod("2400", "updated", "b", "4", "Running"),
	aPod("2400", "added", "c", "5", "Failed"), // 17:40, is well 4 minutes later
	aPod("2640", "updated", "c", "6", "Running"),
	aPod("7200", "updated", "b", "7", "Failed"), // 19:00, told at 19:10
	`{"at":9000,"op":"end","stateless":1}`, "",
}

func backtested(t *testing.T, code int, args ...string) (out, log string) {
	t.Helper()
	t.Setenv("TZ", "UTC")
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), append([]string{"backtest"}, args...), &stdout, &stderr); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

// TestBacktest shows which events rules would have made of a recording, by its clock, and how they
// differ from those of other rules.
func TestBacktest(t *testing.T) {
	install(t, backtestRules, backtestLines...)
	must.Succeed(t, os.WriteFile("old.yaml", []byte(strings.ReplaceAll(backtestRules, "for: 10m", "for: 3m")), 0o600))
	const events = `
down: told 4, keys 2, outside Mon-Fri 8-18 1; before 6: new 0, gone 2, at another time 3
  ~ 2026-01-02 17:10:00  shop/a  before at 2026-01-02 17:03:00  {"name":"a","op":"entered"}
  ~ 2026-01-02 17:30:00  shop/b  before at 2026-01-02 17:23:00  {"name":"b","op":"entered"}
    2026-01-02 17:40:00  shop/b  {"name":"b","op":"left"}
  - 2026-01-02 17:43:00  shop/c  {"name":"c","op":"entered"}
    and 2 more: see -limit
`
	text, _ := backtested(t, 0, "r.ndjson", "-config", "config.yaml", "-against", "old.yaml", "-limit", "4", "-route", "down")
	_, rest, _ := strings.Cut(text, "hours per second\n")
	want := `note: 2 records of the time could not be written, and may be missing
note: route "down": a condition that held at the begin counts from then, so for is exact from 2026-01-02 17:10:00 on
note: 1 changes have no states in the history, and are missing
note: the configuration to compare with: route "down": a condition that held at the begin counts from then, so for is exact from 2026-01-02 17:03:00 on
` + events
	if rest != want || !strings.HasPrefix(text, "2026-01-02 17:00:00 to 2026-01-02 19:30:00 (2h30m) of cluster here: 5 changes, in ") {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	text, _ = backtested(t, 0, "r.ndjson", "-config", "old.yaml", "-against", "config.yaml", "-o", "json", "-expect", `event.data.op == "entered"`)
	var r backtest.Report
	must.Succeed(t, json.Unmarshal([]byte(text), &r))
	wanted := []backtest.Summary{
		{Route: "down", Told: 6, Keys: 3, Outside: 1, False: 2, Before: 4, New: 2, Moved: 3},
		{Route: "last", Told: 3, Keys: 1, Outside: 1, False: 3, Before: 3}, // data has no op
		{Route: "seen"},
	}
	if !slices.Equal(r.Routes, wanted) {
		t.Errorf("got %+v, want %+v", r.Routes, wanted)
	}
	if e := r.Events[0]; e.Subject != "shop/a" || !slices.Equal(e.To, []string{"hook", "log"}) || e.Change != "moved" || e.Time.Minute() != 3 || e.Was.Minute() != 10 {
		t.Errorf("got %+v", e)
	}
	text, _ = backtested(t, 0, "r.ndjson", "-config", "config.yaml", "-against", "old.yaml", "-o", "markdown")
	for _, want := range []string{"\n| down | 4 | 6 | 0 | 2 | 3 | 2 | 1 | 0 | 0 |\n", "\n<details><summary>down</summary>\n\n    ~ 2026-01-02 17:10:00  shop/a"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestBacktestBegin shows that events about objects as they were at the begin are not counted as
// told, and that another source of the resource stands in for one that was not recorded.
func TestBacktestBegin(t *testing.T) {
	install(t, `version: 1
sources:
  new: {resource: v1/pods, labelSelector: app}
  all: {resource: v1/pods}
  nodes: {resource: v1/nodes}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: all, existing: deliver, emit: '{"nodes": count("nodes.name", "x")}', to: out}
  - {name: labelled, from: new, to: out}
`, append(slices.Clone(backtestLines[:len(backtestLines)-2]), "")...)
	text, _ := backtested(t, 0, "r.ndjson", "-config", "config.yaml", "-limit", "0", "-office", "17-18")
	for _, want := range []string{
		"all: told 5, keys 2, outside Mon-Fri 17-18 1, of the objects at the begin 2\n", "labelled: told 0, keys 0\n",
		`note: source "all" is not in the history; it gets the objects of source "pods", which has the same resource`,
		`note: source "nodes" is not in the history: it has no objects here`, "note: the recording is cut off",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestBacktestMistakes(t *testing.T) {
	install(t, backtestRules, backtestLines...)
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"-max 6 r.ndjson", "7 events would have been told, and -max is 6", 1},
		{"-max 7 r.ndjson", "", 0},
		{"-max 0 -expect event.data.op=='entered' -route down r.ndjson", "1 false alarms would have been told, and -max is 0", 1},
		{"-route dawn r.ndjson", `there is no such route; did you mean "down"?`, 2},
		{"-expect event.data.op r.ndjson", "-expect has no value for 7 events, which count as false alarms: ", 0},
		{"-expect event.( r.ndjson", "-expect: ", 2},
		{"-office 18-8 r.ndjson", "the first hour must be before the second", 2},
		{"-office eight r.ndjson", "write two hours, as in 8-18", 2},
		{"-since -3h", "write how long ago", 2},
		{"none.ndjson", "there is no file none.ndjson", 2},
		{"config.yaml", "not a recording", 2},
		{"-answers config.yaml r.ndjson", "config.yaml:", 2},
		{"-against none.yaml r.ndjson", "none.yaml", 2},
		{"r.ndjson r.ndjson", "name one recording", 2},
		{"-save x r.ndjson", "name one recording", 2},
		{"", "config.yaml has no listen.api", 2},
	} {
		out, log := backtested(t, test.code, append([]string{"-config", "config.yaml"}, strings.Fields(test.args)...)...)
		if !strings.Contains(out+log, test.want) {
			t.Errorf("%s: %q is missing in\n%s%s", test.args, test.want, out, log)
		}
	}
}
