package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// guestModule writes a module of the ABI rtr_v1 with this body of rtr_handle and this data at
// offset 16.
func guestModule(t *testing.T, data string, handle ...byte) string {
	t.Helper()
	sized := func(b []byte) []byte { return append([]byte{byte(len(b))}, b...) }
	section := func(id byte, content ...[]byte) []byte {
		return append([]byte{id}, sized(slices.Concat(content...))...)
	}
	export := func(name string, kind, index byte) []byte { return append(sized([]byte(name)), kind, index) }
	const i32, i64, end = 0x7f, 0x7e, 0x0b
	module := slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{3}, []byte{0x60, 0, 1, i32}, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 2, i32, i32, 1, i64}),
		section(3, []byte{3, 0, 1, 2}),
		section(5, []byte{1, 0, 17}),
		section(7, []byte{4}, export("memory", 2, 0), export("rtr_abi_version", 0, 0), export("rtr_alloc", 0, 1), export("rtr_handle", 0, 2)),
		section(10, []byte{3}, sized([]byte{0, 0x41, 1, end}), sized([]byte{0, 0x41, 0x80, 0x80, 4, end}), sized(slices.Concat([]byte{0}, handle, []byte{end}))),
		section(11, []byte{1, 0, 0x41, 16, end}, sized([]byte(data))),
	)
	file := filepath.Join(t.TempDir(), "guest.wasm")
	must.Succeed(t, os.WriteFile(file, module, 0o600))
	return file
}

// endless is a handler that never stops.
func endless(t *testing.T) string {
	t.Helper()
	return guestModule(t, "", 0x03, 0x40, 0x0c, 0, 0x0b, 0x42, 0)
}

// mended is a handler that makes an event of each delta, if it gets them one by one.
func mended(t *testing.T) string {
	t.Helper()
	const event = `{"data":"mended"}`
	record := "\x00\x00\x00\x00" + "\x00\x00\x01\x00" + strings.Repeat("\x00", 12) + "\x20\x00\x00\x00" + string(rune(4+len(event))) + "\x00\x00\x00"
	answer := "\x01\x00\x00\x00" + record + string(rune(len(event))) + "\x00\x00\x00" + event
	// 16 << 32 | its length
	return guestModule(t, answer, 0x42, 16, 0x42, 32, 0x86, 0x42, byte(len(answer)), 0x84)
}

// replayed requires that the replay of a dead letter fails as recorded, with the same fuel.
func replayed(t *testing.T, file string, args ...string) {
	t.Helper()
	out, err := routertest.Command(append([]string{"plugin", "replay", "-config", file}, args...)...).CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed || exit.ExitCode() != 1 || strings.Count(string(out), "(as recorded)") != 2 || !strings.Contains(string(out), "in: rtr_handle") {
		t.Errorf("the replay ended with %v:\n%s", err, out)
	}
}

// TestHostileHandler shows that an endless handler does not block another route. Its delta becomes
// a dead letter with the names of handler and object; further deltas wait, and are handled after a
// reload with a good module.
func TestHostileHandler(t *testing.T) {
	// Guarantee: broken-handler, call-replay
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	config := func(module string) string {
		return fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0", api: "unix:%s"}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
handlers: {bad: {wasm: {module: %q, limits: {batch: 1}}}}
sinks: {out: {stdout: {}}}
routes:
  - {name: good, from: maps, to: out}
  - {name: bad, from: maps, handler: bad, to: out, retry: {attempts: 0, backoff: 10ms, max: 50ms}}
`, s.Kubeconfig(), filepath.Join(dir, "state"), filepath.Join(dir, "api.sock"), ns, module)
	}
	must.Succeed(t, os.WriteFile(file, []byte(config(endless(t))), 0o600))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	const n = 20
	for i := range n {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m%02d", i), "1"))
	}
	of := func(route string) (subjects []string) {
		for _, e := range r.Events() {
			if e.Route == route {
				subjects = append(subjects, e.Subject)
			}
		}
		return subjects
	}
	routertest.Poll(t, "the events of the good route", func() bool { return len(of("good")) == n })
	letters := func() int { return strings.Count(dlq(t, file, "list"), "\n") - 1 }
	routertest.Poll(t, "the circuit breaker to open", func() bool {
		return letters() >= 1 && strings.Contains(r.Log(), "guests fail at every delta")
	})
	shown := dlq(t, file, "show", "1")
	if !strings.Contains(shown, `wasm \"bad\": out of fuel`) || !strings.Contains(shown, "limits.fuel") {
		t.Errorf("the letter does not name the handler:\n%s", shown)
	}
	replayed(t, file, "1")
	saved := filepath.Join(dir, "letter.json")
	must.Succeed(t, os.WriteFile(saved, []byte(shown), 0o600))
	replayed(t, file, "-file", saved)
	if code, _ := r.Get(t, "/healthz"); code != 200 {
		t.Errorf("/healthz says %d", code)
	}

	r.Reload(t, file, config(mended(t)), true)
	routertest.Poll(t, "each delta that is no dead letter", func() bool { return len(of("bad"))+letters() == n })
	if letters() > n/2 {
		t.Errorf("%d of %d are dead letters: the circuit breaker did not open", letters(), n)
	}
	got := of("bad")
	slices.Sort(got)
	if len(slices.Compact(got)) != len(of("bad")) {
		t.Errorf("some came twice: %q", got)
	}
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
