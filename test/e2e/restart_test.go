package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// install writes a configuration with a state folder that several routers use, one after the other.
func install(t *testing.T, kubeconfig, config string) (file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "config.yaml")
	head := fmt.Sprintf("version: 1\ncluster: {name: test, kubeconfig: %q}\nstate: {dir: %q}\nlisten: {probes: \"127.0.0.1:0\"}\n",
		kubeconfig, filepath.Join(dir, "state"))
	if err := os.WriteFile(file, []byte(head+config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kill ends the router with SIGKILL.
func (r *router) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.exited {
		r.changed.Wait()
	}
}

// listsOf counts the requests that list a resource as a whole.
func listsOf(t *testing.T, s *sandboxtest.Sandbox, resource string) int {
	t.Helper()
	return len(s.Requests(t, func(r sandboxtest.Request) bool {
		return r.Resource == resource && (r.Verb == "list" && !strings.Contains(r.URI, "limit=1&") && !strings.HasSuffix(r.URI, "limit=1") ||
			strings.Contains(r.URI, "sendInitialEvents=true"))
	}))
}

// TestRestartReplaysNothing: nothing changed while the router was down, so nothing is listed and nothing is delivered.
func TestRestartReplaysNothing(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	for i := range 50 {
		maps.create(configMap(fmt.Sprintf("m-%d", i), "1"))
	}
	file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s, indexes: {byValue: object.data.value}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: maps, existing: deliver, to: out}
  - {name: same, from: maps, on: updated, filter: 'count("byValue", object.data.value) > 1', emit: '{"n": count("byValue", "1")}', to: out}
`, ns))
	for _, end := range []string{"stopped", "killed"} {
		r := startFile(t, file)
		r.ready(t)
		before := listsOf(t, s, "configmaps")
		maps.create(configMap("mark-"+end, "1"))
		r.expect(t, "all added "+ns+"/mark-"+end)
		if end == "stopped" {
			if code := r.stop(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		} else {
			poll(t, "a cut to be written", func() bool { return r.cutSince(t) })
			r.kill(t)
		}

		again := startFile(t, file)
		again.ready(t)
		maps.patch("mark-"+end, `{"metadata":{"labels":{"now":"changed"}}}`)
		events := again.expect(t, "all updated "+ns+"/mark-"+end, "same updated "+ns+"/mark-"+end)
		if len(events) != 2 {
			t.Errorf("%s: got %q, want two events", end, summary(events))
		}
		if n := listsOf(t, s, "configmaps") - before; n != 0 {
			t.Errorf("%s: %d lists, want none", end, n)
		}
		again.kill(t)
	}
}

// cutSince waits for a cut that began after the call: the age of the checkpoint has become smaller than it was.
func (r *router) cutSince(t *testing.T) bool {
	t.Helper()
	_, body := r.get(t, "/metrics")
	age := 1e9
	for line := range strings.SplitSeq(body, "\n") {
		if rest, ok := strings.CutPrefix(line, "deltarouter_checkpoint_age_seconds "); ok {
			_, _ = fmt.Sscanf(rest, "%g", &age)
		}
	}
	if r.cutAge == 0 {
		r.cutAge = age
		return false
	}
	fresh := age < r.cutAge
	r.cutAge = max(age, 0.001)
	return fresh
}

// TestDeletedWhileDown: deletes and recreations while the router is down are delivered exactly, deletes with their last state.
func TestDeletedWhileDown(t *testing.T) {
	const n = 100
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	for i := range n {
		maps.create(configMap(fmt.Sprintf("gone-%d", i), "1"))
		maps.create(configMap(fmt.Sprintf("again-%d", i), "1"))
	}
	file := install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := startFile(t, file)
	r.ready(t)
	r.stop(t)
	var want []string
	for i := range n {
		gone, again := fmt.Sprintf("gone-%d", i), fmt.Sprintf("again-%d", i)
		maps.remove(gone)
		maps.remove(again)
		maps.create(configMap(again, "2"))
		want = append(want, "all deleted "+ns+"/"+gone, "all deleted "+ns+"/"+again, "all added "+ns+"/"+again)
	}
	r = startFile(t, file)
	events := r.expect(t, want...)
	if len(events) != len(want) {
		t.Errorf("%d events, want %d", len(events), len(want))
	}
	for _, e := range events {
		if strings.HasSuffix(e.Type, "deleted") && !strings.Contains(string(e.Data), `"value":"1"`) {
			t.Errorf("%s without its last state: %s", e, e.Data)
		}
	}
	if got, want := of(events, ns+"/again-7"), []string{"all deleted " + ns + "/again-7", "all added " + ns + "/again-7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOwedSurvivesAKill: what a sink did not take is owed still after a crash.
func TestOwedSurvivesAKill(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: both, from: maps, to: [out, hook], retry: {backoff: 10ms, max: 100ms}}
`, ns, h.URL))
	r := startFile(t, file)
	r.ready(t)
	maps := use(t, s, configMaps, ns)
	maps.create(configMap("a", "1"))
	maps.patch("a", `{"data":{"value":"2"}}`)
	maps.remove("a")
	r.expect(t, "both added "+ns+"/a")
	poll(t, "a cut to be written", func() bool { return r.cutSince(t) })
	r.kill(t)

	h.answer(http.StatusOK)
	again := startFile(t, file)
	poll(t, "the webhook to get what was owed", func() bool { return h.count() >= 3 })
	for i, op := range []string{"added", "updated", "deleted"} {
		if !strings.Contains(h.got[i], `"type":"deltarouter.`+op+`"`) {
			t.Errorf("event %d is %.200s, want %s", i, h.got[i], op)
		}
	}
	for _, e := range again.all() {
		if e.Type == "deltarouter.added" {
			t.Errorf("the sink that had it got it again: %s", e)
		}
	}
}

// TestLedger writes a known history while the router is killed again and again, and looks whether every delete of everything that was
// ever delivered, and the last state of all that is left, were delivered, and whether anything went backwards between two kills.
func TestLedger(t *testing.T) {
	const kills, objects, perLife = 10, 40, 60
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: maps, filter: object.metadata.name.startsWith("o-"), existing: deliver, to: out, batch: {wait: 1ms}}
`, ns))
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	book := newLedger(t)
	for range kills {
		r := startFile(t, file)
		for range perLife {
			book.step(maps, fmt.Sprintf("o-%d", random.IntN(objects)), random.IntN(4))
		}
		if random.IntN(2) == 0 { // some lives end at once, some after something arrived
			r.wait(t, "anything", func() bool { return len(r.events) > random.IntN(perLife/2) })
		}
		r.kill(t)
		book.read(r.all())
		for range perLife / 4 { // while it is down
			book.step(maps, fmt.Sprintf("o-%d", random.IntN(objects)), random.IntN(4))
		}
	}
	last := startFile(t, file)
	defer func() {
		if t.Failed() {
			t.Log(book.settled(last.all()))
		}
	}()
	poll(t, "the last state", func() bool { return book.settled(last.all()) == "" })
	book.read(last.all())
	if problem := book.settled(nil); problem != "" {
		t.Error(problem)
	}
}
