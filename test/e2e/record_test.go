package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// recordingRun is a running router record.
type recordingRun struct {
	cmd    *exec.Cmd
	file   string
	stderr bytes.Buffer
}

func startRecorder(t *testing.T, config string, args ...string) *recordingRun {
	t.Helper()
	r := &recordingRun{file: filepath.Join(t.TempDir(), "deltas.ndjson.zst")}
	r.cmd = routertest.Command(append([]string{"record", "-config", config, "-o", r.file}, args...)...)
	r.cmd.Stderr = &r.stderr
	must.Succeed(t, r.cmd.Start())
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	return r
}

// has waits until a line of the file fulfils holds.
func (r *recordingRun) has(t *testing.T, what string, holds func(recording.Line) bool) {
	t.Helper()
	routertest.Poll(t, what, func() bool {
		f, err := os.Open(r.file)
		if err != nil {
			return false
		}
		defer f.Close()
		in, err := recording.NewReader(f, recording.Limits{})
		if err != nil {
			return false
		}
		defer in.Close()
		for {
			l, err := in.Next()
			if err != nil {
				return false
			}
			if holds(l) {
				return true
			}
		}
	})
}

func (r *recordingRun) synced(t *testing.T, sources ...string) {
	t.Helper()
	for _, source := range sources {
		r.has(t, "that "+source+" is synced", func(l recording.Line) bool { return l.Op == recording.Synced && l.Source == source })
	}
}

// end ends the program with a signal and returns its exit code.
func (r *recordingRun) end(t *testing.T, with os.Signal) int {
	t.Helper()
	must.Succeed(t, r.cmd.Process.Signal(with))
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.cmd.ProcessState.ExitCode()
}

// text returns the unpacked content of the file.
func (r *recordingRun) text(t *testing.T) string {
	t.Helper()
	packed, err := os.ReadFile(r.file)
	must.Succeed(t, err)
	in, err := zstd.NewReader(bytes.NewReader(packed))
	must.Succeed(t, err)
	defer in.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(in); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// replay runs a configuration on a recording, with no reachable API server, and returns the events.
func replay(t *testing.T, config, file string) (events []routertest.Event, log string) {
	t.Helper()
	text, err := os.ReadFile(config)
	must.Succeed(t, err)
	before, after, _ := strings.Cut(string(text), "kubeconfig: ")
	_, after, _ = strings.Cut(after, "}")
	alone := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(alone, []byte(before+"kubeconfig: /nowhere}"+after), 0o600))
	var stdout, stderr bytes.Buffer
	cmd := routertest.Command("replay", "-config", alone, "-speed", "100", file)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		var e routertest.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
	return events, stderr.String()
}

// ids returns the ids of the events of each subject in their order.
func ids(events []routertest.Event) map[string][]string {
	all := make(map[string][]string)
	for _, e := range events {
		all[e.Route+" "+e.Subject] = append(all[e.Route+" "+e.Subject], e.Type+" "+e.ID)
	}
	return all
}

// TestRecordAndReplay shows that the replay of a recording has, without a cluster, the same events
// as the router had in the cluster, in the order of each object. This includes a recording whose
// recorder was killed. No recording contains the data of a Secret.
func TestRecordAndReplay(t *testing.T) {
	t.Parallel()
	const secret, dropped = "aHVudGVyMmh1bnRlcjI", "nobody-shall-see-this"
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("before", "1", "app=web"))
	apply := func(version string) {
		s.Apply(t, ns, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: token
  annotations: {meta.helm.sh/release-name: "%s", kubectl.kubernetes.io/last-applied-configuration: '{"data":{"password":"%s"}}'}
data: {password: %s=}
`, version, secret, secret))
	}
	apply("1")
	config := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s, indexes: {byApp: 'object.metadata.labels["app"]'}}
  web: {resource: v1/configmaps, namespaces: %[1]s, labelSelector: app=web}
  secrets: {resource: v1/secrets, namespaces: %[1]s, secrets: true}
sinks: {out: {stdout: {}}, hook: {webhook: {url: "http://127.0.0.1:1"}}}
routes:
  - {name: maps, from: maps, to: out, emit: '{"name": object.metadata.name, "webs": count("maps.byApp", "web")}'}
  - {name: web, from: web, ops: [added, updated, deleted, deselected], to: out}
  - {name: secrets, from: secrets, to: out, filter: 'changed("metadata.annotations")', emit: '{"version": object.metadata.annotations["meta.helm.sh/release-name"]}'}
`, ns))
	live := routertest.StartFile(t, config)
	live.Ready(t)
	whole, killed := startRecorder(t, config), startRecorder(t, config, "-drop", "data")
	whole.synced(t, "maps", "web", "secrets")
	killed.synced(t, "maps", "web", "secrets")

	maps.Change("before", `{"data":{"value":"`+dropped+`"}}`)
	maps.Make(routertest.ConfigMap("new", dropped, "app=web"))
	maps.Change("new", `{"metadata":{"labels":{"app":"other"}}}`)
	maps.Change("new", `{"metadata":{"labels":{"app":"web"}}}`)
	maps.Remove("before")
	maps.Make(routertest.ConfigMap("before", "again", "app=web"))
	apply("2")
	maps.Make(routertest.ConfigMap("last", "1", "app=web"))
	want := live.Expect(t, "maps updated "+ns+"/before", "maps added "+ns+"/new", "maps updated "+ns+"/new", "maps updated "+ns+"/new",
		"maps deleted "+ns+"/before", "maps added "+ns+"/before", "maps added "+ns+"/last",
		"web updated "+ns+"/before", "web added "+ns+"/new", "web deselected "+ns+"/new", "web added "+ns+"/new", "web deleted "+ns+"/before",
		"web added "+ns+"/before", "web added "+ns+"/last", "secrets updated "+ns+"/token")

	last := func(source, name string) func(recording.Line) bool {
		return func(l recording.Line) bool {
			return l.Source == source && l.Op != recording.Existing && strings.Contains(l.Object, `"`+name+`"`)
		}
	}
	for _, r := range []*recordingRun{whole, killed} {
		r.has(t, "the last map", last("maps", "last"))
		r.has(t, "the last map of the web", last("web", "last"))
		r.has(t, "the secret", last("secrets", "token"))
	}
	if code := whole.end(t, syscall.SIGINT); code != 0 || !strings.Contains(whole.stderr.String(), "lines were recorded") {
		t.Errorf("exit code %d\n%s", code, &whole.stderr)
	}
	killed.end(t, syscall.SIGKILL)

	got, log := replay(t, config, whole.file)
	if !sameIDs(ids(got), ids(want)) {
		t.Errorf("got %v\nwant %v\n%s", routertest.Summary(got), routertest.Summary(want), log)
	}
	if got, log = replay(t, config, killed.file); !sameIDs(ids(got), ids(want)) || !strings.Contains(log, "the recording is cut off") {
		t.Errorf("killed: got %v\nwant %v\n%s", routertest.Summary(got), routertest.Summary(want), log)
	}
	if text := whole.text(t); strings.Contains(text, secret) || strings.Contains(text, "hunter2") || !strings.Contains(text, `"password":"`) || !strings.Contains(text, dropped) {
		t.Errorf("in the recording: %s", text)
	}
	killed.has(t, "a map without data", func(l recording.Line) bool {
		return strings.Contains(l.Object, `"last"`) && !strings.Contains(l.Object, `"data"`)
	})
	killed.never(t, dropped)
	killed.never(t, secret)
	if info, err := os.Stat(whole.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// never checks that the readable part of a recording does not contain the text.
func (r *recordingRun) never(t *testing.T, text string) {
	t.Helper()
	f, err := os.Open(r.file)
	must.Succeed(t, err)
	defer f.Close()
	in, err := recording.NewReader(f, recording.Limits{})
	must.Succeed(t, err)
	defer in.Close()
	for {
		l, err := in.Next()
		if err != nil {
			return
		}
		if strings.Contains(l.Object, text) {
			t.Errorf("%q is in %v", text, l)
		}
	}
}

func sameIDs(a, b map[string][]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key := range a {
		if !slices.Equal(a[key], b[key]) {
			return false
		}
	}
	return true
}

// TestRecordToStdout shows that a recording of one source ends by itself after its time, and goes
// to standard output as plain lines.
func TestRecordToStdout(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("one", "1"))
	config := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}, others: {resource: v1/pods, namespaces: %[1]s}}
sinks: {out: {stdout: {}}}
routes: [{name: maps, from: maps, to: out}, {name: others, from: others, to: out}]
`, ns))
	var stdout, stderr bytes.Buffer
	cmd := routertest.Command("record", "-config", config, "-o", "-", "-source", "maps", "-for", "5s")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	in, err := recording.NewReader(&stdout, recording.Limits{})
	must.Succeed(t, err)
	defer in.Close()
	if h := in.Header(); h.Cluster != "test" || len(h.Sources) != 1 || h.Sources["maps"].Resource != "v1/configmaps" {
		t.Errorf("header %+v", h)
	}
	var ops []recording.Op
	for {
		l, err := in.Next()
		if err != nil {
			break
		}
		// present if a controller makes it
		if strings.Contains(l.Object, "kube-root-ca.crt") {
			continue
		}
		ops = append(ops, l.Op)
	}
	if want := []recording.Op{recording.Existing, recording.Synced, recording.End}; !slices.Equal(ops, want) {
		t.Errorf("got %v, want %v", ops, want)
	}
	out, code := routertest.Control(t, config, "record", "-o", filepath.Join(t.TempDir(), "x"), "-source", "map")
	if code != 1 || !strings.Contains(out, `there is no source "map"; did you mean "maps"?`) {
		t.Errorf("exit code %d, %s", code, out)
	}
}
