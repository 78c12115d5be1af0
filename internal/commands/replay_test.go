package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

const replayConfig = `version: 1
cluster: {name: there}
state: {dir: ./never}
sources:
  pods: {resource: v1/pods, namespaces: [a, b], indexes: {byNode: object.spec.nodeName}}
  again: {resource: v1/pods, namespaces: [a, b]}
  nodes: {resource: v1/nodes}
  jobs: {resource: batch/v1/jobs}
sinks: {hook: {webhook: {url: "http://127.0.0.1:1"}}}
routes:
  - {name: pods, from: pods, ops: [added, updated, deleted, deselected, sync], to: hook, existing: deliver,
     emit: '{"name": object.metadata.name, "op": op, "on": lookup("pods.byNode", object.spec.nodeName).size()}'}
  - {name: again, from: again, to: hook, emit: '{"name": object.metadata.name}'}
  - {name: nodes, from: nodes, to: hook, filter: 'count("jobs.name", "x") == 0', emit: '{"now": object.metadata.name}'}
`

const replayHeader = `{"format":"deltarouter-recording","version":1,"cluster":"here","time":"2026-01-02T03:04:05Z","sources":{"pods":{"resource":"v1/pods"},"nodes":{"resource":"v1/nodes"},"gone":{"resource":"v1/events"}}}`

func recorded(at, op, source, namespace, name string, version int) string {
	return fmt.Sprintf(`{"at":%s,"op":%q,"source":%q,"object":{"metadata":{"namespace":%q,"name":%q,"uid":"u-%s","resourceVersion":"%d"},"spec":{"nodeName":"n"}}}`,
		at, op, source, namespace, name, name, version)
}

// install writes a configuration and a recording and changes to their folder.
func install(t *testing.T, config string, lines ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"config.yaml": config, "r.ndjson": strings.Join(lines, "\n")} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// replayed runs a replay and returns the events of each route: subject, data and time.
func replayed(t *testing.T, code int, args ...string) (came map[string][]string, log string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), append([]string{"replay"}, args...), &stdout, &stderr); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, &stdout, &stderr)
	}
	came = make(map[string][]string)
	for line := range strings.Lines(stdout.String()) {
		var e struct {
			Route, Subject string
			Time           time.Time
			Data           json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		came[e.Route] = append(came[e.Route], fmt.Sprintf("%s %s %s", e.Time.UTC().Format(time.RFC3339Nano), e.Subject, e.Data))
	}
	return came, stderr.String()
}

// TestReplay shows that a recording runs through the routes of the configuration and is printed,
// with the time of the recording: existing objects, in watched namespaces, with sources that share
// a watch, and with look-ups.
func TestReplay(t *testing.T) {
	install(t, replayConfig, replayHeader,
		recorded("0", "existing", "pods", "a", "one", 1),
		recorded("0", "existing", "pods", "c", "elsewhere", 2),
		`{"at":0,"op":"synced","source":"nodes"}`,
		recorded("0.1", "existing", "pods", "b", "two", 3),
		recorded("0.2", "added", "nodes", "", "n", 4),
		`{"at":0.3,"op":"synced","source":"pods"}`,
		recorded("3600", "added", "pods", "a", "three", 5),
		recorded("3600", "updated", "pods", "a", "one", 6),
		recorded("3600", "added", "gone", "a", "x", 7),
		recorded("7200", "deselected", "pods", "a", "one", 8),
		recorded("7200", "deleted", "pods", "b", "two", 9),
		strings.Replace(recorded("7200", "sync", "pods", "a", "three", 5), `"object"`, `"round":"2026-01-02T05:04:05Z","object"`, 1),
		`{"at":10800,"op":"end"}`, "")
	came, log := replayed(t, 0, "-config", "config.yaml", "-speed", "100000", "r.ndjson")
	// a look-up may return a later state, as in a running router
	counts := regexp.MustCompile(`"on":[123]`)
	for route, want := range map[string][]string{
		"again": {`04:04:05 a/three {"name":"three"}`, `04:04:05 a/one {"name":"one"}`, `05:04:05 b/two {"name":"two"}`},
		"nodes": {`03:04:05 n {"now":"n"}`},
		"pods": {
			`03:04:05 a/one {"name":"one","on":1,"op":"added"}`, `03:04:05 b/two {"name":"two","on":1,"op":"added"}`,
			`04:04:05 a/three {"name":"three","on":1,"op":"added"}`, `04:04:05 a/one {"name":"one","on":1,"op":"updated"}`,
			`05:04:05 a/one {"name":"one","on":1,"op":"deselected"}`, `05:04:05 b/two {"name":"two","on":1,"op":"deleted"}`,
			`05:04:05 a/three {"name":"three","on":1,"op":"sync"}`,
		},
	} {
		got := came[route]
		least := make(map[string]string) // time of the recording
		for i, line := range want {
			least[line[9:]], want[i] = "2026-01-02T"+line[:8]+"Z", line[9:]
		}
		for i, line := range got {
			at, event, _ := strings.Cut(counts.ReplaceAllString(line, `"on":1`), " ")
			if got[i] = event; at[:19] < least[event][:min(19, len(least[event]))] {
				t.Errorf("%s: %s at %s, recorded at %s", route, event, at, least[event])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", route, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, want := range []string{"9 deltas of cluster here, recorded at 2026-01-02T03:04:05Z", `it is not in the recording`, `the configuration does not have it`, "the ids of events differ"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is missing in %s", want, log)
		}
	}
	if _, err := os.Stat("never"); err == nil {
		t.Error("there is a state folder")
	}
}

// TestReplayCutOff shows that an incomplete recording is played up to its last whole line, as fast
// as possible, and that the end is reported. A damaged line ends the replay.
func TestReplayCutOff(t *testing.T) {
	lines := []string{replayHeader, `{"at":0,"op":"synced","source":"nodes"}`, `{"at":0,"op":"synced","source":"pods"}`, recorded("1e6", "added", "pods", "a", "one", 1)}
	install(t, replayConfig, append(lines, recorded("1e6", "added", "pods", "a", "two", 2)[:50])...)
	came, log := replayed(t, 0, "r.ndjson", "-config", "config.yaml", "-speed", "max")
	if len(came["pods"]) != 1 || !strings.Contains(log, "the recording is cut off within line 5") || !strings.Contains(log, "played 1 delta of cluster here") {
		t.Errorf("got %v\n%s", came, log)
	}
	install(t, replayConfig, append(lines, `{"at":`, "")...)
	came, log = replayed(t, 1, "r.ndjson", "-config", "config.yaml", "-speed", "0")
	if len(came["pods"]) != 1 || !strings.Contains(log, "router replay: line 5: ") {
		t.Errorf("got %v\n%s", came, log)
	}
}

// TestReplayDelivers shows that only -deliver writes to the sinks of the configuration.
func TestReplayDelivers(t *testing.T) {
	lines := []string{replayHeader, `{"at":0,"op":"synced","source":"nodes"}`, `{"at":0,"op":"synced","source":"pods"}`, recorded("0", "added", "pods", "a", "one", 1), `{"at":0,"op":"end"}`, ""}
	install(t, replayConfig, lines...)
	came, log := replayed(t, 0, "r.ndjson", "-config", "config.yaml", "-deliver", "-drain-timeout", "10ms")
	if len(came) > 0 || !strings.Contains(log, "deltas still pending") {
		t.Errorf("got %v\n%s", came, log)
	}
}

func TestReplayRefuses(t *testing.T) {
	install(t, replayConfig, "no recording", "")
	must.Succeed(t, os.WriteFile("other.ndjson", []byte(strings.Replace(replayHeader, "v1/pods", "v1/services", 1)+"\n"), 0o600))
	must.Succeed(t, os.WriteFile("bad.yaml", []byte("version: 7\n"), 0o600))
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"replay -config config.yaml r.ndjson", 2, "not a recording"},
		{"replay -config config.yaml none.ndjson", 2, "there is no file none.ndjson"},
		{"replay -config config.yaml .", 2, "router replay: . cannot be read: it is a folder, not a file"},
		{"replay -config config.yaml", 2, "name one recording"},
		{"replay r.ndjson", 2, "not a recording"},
		{"replay -config bad.yaml r.ndjson", 2, "bad.yaml:1:"},
		{"replay -config config.yaml -speed -1 r.ndjson", 2, "give a number"},
		{"replay -config config.yaml -speed NaN r.ndjson", 2, "give a number"},
		{"replay -config config.yaml other.ndjson", 1, "sources.pods: its resource is v1/pods, but that of the recorded source is v1/services"},
		{"replay help", 0, "RECORDING may be -"},
		{"record help", 0, "-drop PATH"},
		{"record", 2, "-o FILE is missing"},
		{"record -o r.ndjson -config config.yaml", 2, "the file exists already"},
		{"record -o new.ndjson -config bad.yaml", 2, "bad.yaml:1:"},
		{"record -o new.ndjson -for -1s", 2, "a duration that is not negative"},
		{"record -o new.ndjson x", 2, `unexpected argument "x"`},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != test.code || !strings.Contains(stdout.String()+stderr.String(), test.want) {
			t.Errorf("%s: exit code %d\n%s%s", test.args, code, &stdout, &stderr)
		}
	}
	if files, _ := filepath.Glob("new*"); len(files) > 0 {
		t.Errorf("left: %v", files)
	}
}

// TestReplayRules shows that rules about time use the time of the recording, with look-ups and with
// reevaluations.
func TestReplayRules(t *testing.T) {
	node := func(at, op string, version int, ready string) string {
		return fmt.Sprintf(`{"at":%s,"op":%q,"source":"nodes","object":{"metadata":{"name":"n","uid":"u","resourceVersion":"%d"},"status":{"conditions":[{"type":"Ready","status":%q}]}}}`, at, op, version, ready)
	}
	install(t, `version: 1
sources: {nodes: {resource: v1/nodes}, pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes:
  - {name: down, from: nodes, when: 'object.status.conditions.exists(c, c.type == "Ready" && c.status != "True")', for: 2m,
     emit: '{"op": op, "pods": count("pods.name", "x")}', to: out}
  - {name: late, from: nodes, when: 'now > timestamp("2026-01-02T04:00:00Z")', reevaluate: 10m, emit: '{"op": op}', to: out}
`, strings.Replace(replayHeader, "2026-01-02T03:04:05Z", "2026-01-02T03:00:00Z", 1),
		node("0", "existing", 1, "True"), `{"at":0,"op":"synced","source":"pods"}`, `{"at":0,"op":"synced","source":"nodes"}`,
		node("60", "updated", 2, "False"), node("600", "updated", 3, "True"), node("660", "updated", 4, "False"), node("690", "updated", 5, "True"),
		`{"at":7200,"op":"end"}`, "")
	// a busy machine cannot outlast the two minutes of the rule
	synctest.Test(t, func(t *testing.T) {
		came, log := replayed(t, 0, "-config", "config.yaml", "-speed", "3600", "r.ndjson")
		for route, want := range map[string][]string{"down": {`{"op":"entered","pods":0}`, `{"op":"left","pods":0}`}, "late": {`{"op":"entered"}`}} {
			var got []string
			for _, line := range came[route] {
				got = append(got, line[strings.Index(line, "{"):])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v\n%s", route, came[route], want, log)
			}
		}
	})
}

// TestReplayChain shows that routes pass events to each other in a replay, and that the events at
// the ends of a chain are printed, for each route in which a recording ends.
func TestReplayChain(t *testing.T) {
	install(t, `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {hook: {webhook: {url: "http://127.0.0.1:1"}}}
routes:
  - {name: last, emit: '{"of": event.route, "n": event.data.n}', to: hook}
  - {name: first, from: pods, emit: '[{"n": 1}, {"n": 2}]', to: [{route: next}, {route: last}]}
  - {name: next, filter: event.data.n == 2, to: [hook, {route: last}]}
`, replayHeader, recorded("1", "added", "pods", "a", "x", 1), recorded("2", "deleted", "pods", "a", "x", 2), "")
	for _, speed := range []string{"max", "100"} {
		came, log := replayed(t, 0, "-config", "config.yaml", "-speed", speed, "r.ndjson")
		for route, want := range map[string][]string{
			"first": nil, "next": {`{"n":2}`, `{"n":2}`},
			"last": {`{"n":1,"of":"first"}`, `{"n":1,"of":"first"}`, `{"n":2,"of":"first"}`, `{"n":2,"of":"first"}`, `{"n":2,"of":"next"}`, `{"n":2,"of":"next"}`},
		} {
			var got []string
			for _, line := range came[route] {
				got = append(got, line[strings.Index(line, "{"):])
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s at speed %s: got %v, want %v\n%s", route, speed, got, want, log)
			}
		}
	}
}
