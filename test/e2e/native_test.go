package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// childrenOf returns the running children of a process.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("SKIPPED: there is no /proc")
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestNativePlugin shows that a native plugin that is killed again and again loses no event, causes
// no dead letter, and keeps its values, and that a killed router leaves no plugin behind. A
// configuration that it refuses neither starts nor replaces a running one.
func TestNativePlugin(t *testing.T) {
	// Guarantee: plugin-crash, module-digest
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "plugins", "native-go")
	text, err := os.ReadFile(built.Native(t, filepath.Join("..", "..", "examples", "plugins", "native-go")))
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Dir(program), 0o700))
	must.Succeed(t, os.WriteFile(program, text, 0o700)) //nolint:gosec // it is a program
	file := filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: ./state}
listen: {probes: "127.0.0.1:0", api: "unix:%s"}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
handlers: {count: {process: {command: ./plugins/native-go, sha256: %x, allow: {kv: true}, limits: {breaker: 0}}}}
sinks: {out: {stdout: {}}}
routes: [{name: counted, from: maps, handler: count, to: out, concurrency: 1, batch: {size: 8}}]
`, s.Kubeconfig(), filepath.Join(dir, "api.sock"), ns, sha256.Sum256(text))
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	wrong := strings.Replace(config, "allow: {kv", "config: {prefix: 3}, allow: {kv", 1)
	if out, code := exitOf(t, dir, wrong); code != 2 || !strings.Contains(out, "config.yaml:6:") || !strings.Contains(out, ": handlers.count.process.config.prefix: must be of type string") {
		t.Errorf("exit code %d: %s", code, out)
	}
	r := routertest.StartFile(t, file, "-plugin-dir", filepath.Dir(program))
	r.Ready(t)
	if said := r.Status(t); !strings.Contains(said, fmt.Sprintf("count    process  %x\n", sha256.Sum256(text))) {
		t.Errorf("the status does not say what runs: %s", said)
	}
	r.Reload(t, file, wrong, true)
	if log := r.Log(); !strings.Contains(log, "handlers.count.process.config.prefix: must be of type string") {
		t.Errorf("the reload was not refused:\n%s", log)
	}
	routertest.Exchange(t, file, config)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	const each = 6 // changes for a kill
	n := each * effort.Rounds(3, 10, 50)
	killed := map[int]bool{}
	for i := range n {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m%02d", i), "1"))
		if i%each > 0 {
			continue
		}
		routertest.Poll(t, "a process that was not killed yet", func() bool {
			pids := childrenOf(t, r.Process().Pid)
			if len(pids) != 1 || killed[pids[0]] {
				return false
			}
			killed[pids[0]] = true
			return syscall.Kill(pids[0], syscall.SIGKILL) == nil
		})
	}
	subjects := func() (of []string) {
		for _, e := range r.Events() {
			of = append(of, e.Subject)
		}
		slices.Sort(of)
		return slices.Compact(of)
	}
	routertest.Poll(t, "an event of each object", func() bool { return len(subjects()) == n })
	if got := len(r.Events()); got != n {
		t.Errorf("%d events of %d objects: what is not answered has no events", got, n)
	}
	if list := dlq(t, file, "list"); strings.Count(list, "\n") > 1 {
		t.Errorf("there are dead letters:\n%s", list)
	}
	pids := childrenOf(t, r.Process().Pid)
	r.Kill(t)
	for _, pid := range pids {
		routertest.Poll(t, "the plugin to end with its router", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// exitOf runs a router whose plugin refuses the configuration, which router check could not know.
func exitOf(t *testing.T, dir, config string) (out string, code int) {
	t.Helper()
	file := filepath.Join(dir, "wrong", "config.yaml")
	must.Succeed(t, os.Mkdir(filepath.Dir(file), 0o700))
	config = strings.NewReplacer("./plugins", "../plugins", "api.sock", "wrong.sock").Replace(config)
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	if said, err := routertest.Command("check", "-config", file, "-plugin-dir", filepath.Join(dir, "plugins")).CombinedOutput(); err != nil {
		t.Fatalf("check: %v\n%s", err, said)
	}
	cmd := routertest.Command("-config", file, "-plugin-dir", filepath.Join(dir, "plugins"))
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(said), cmd.ProcessState.ExitCode()
}
