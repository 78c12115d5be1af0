// Package embed_test runs the programs of examples/embed, a module of its own that can import
// nothing internal, against a real API server: the informer alone, and a router with a sink and a
// handler of another project.
package embed_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestMain(m *testing.M) { leaks.Main(sandboxtest.Wrap(m)) }

// start starts a program of examples/embed and returns the lines of its standard output. It ends
// with the test.
func start(t *testing.T, s *sandboxtest.Sandbox, name string, args ...string) <-chan string {
	t.Helper()
	dir := filepath.Join("..", "..", "examples", "embed")
	cmd := exec.CommandContext(t.Context(), built.Program{Dir: dir, Package: "./" + name, Env: []string{"CGO_ENABLED=0"}}.File(t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines, ended := make(chan string), make(chan struct{})
	t.Cleanup(func() {
		for range lines { // ended by the signal
		}
		<-ended
	})
	go func() {
		defer close(ended)
		defer close(lines)
		for text := bufio.NewScanner(out); text.Scan(); {
			lines <- text.Text()
		}
		_ = cmd.Wait()
	}()
	return lines
}

// await reads lines until one is wanted.
func await(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the program ended, and did not print %q", want)
			}
			if line == want {
				return
			}
		case <-late:
			t.Fatalf("the program does not print %q", want)
		}
	}
}

// TestLength: each program has at most 80 lines, as docs/EMBEDDING.md says.
func TestLength(t *testing.T) {
	for _, name := range []string{"watch", "router"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "examples", "embed", name, "main.go"))
		must.Succeed(t, err)
		if n := bytes.Count(text, []byte("\n")); n > 80 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
}

// pods are pods with a node, so that nothing schedules them.
func pods(node string, names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: %s, containers: [{name: a, image: b}]}}", name, node))
	}
	return strings.Join(all, "\n---\n")
}

func TestWatch(t *testing.T) {
	s, namespace := sandboxtest.StartNamespace(t)
	lines := start(t, s, "watch")
	s.Apply(t, namespace, pods("n-"+namespace, "web-0"))
	await(t, lines, fmt.Sprintf("added %[1]s/web-0 on n-%[1]s with 1 pods", namespace))
	s.Apply(t, namespace, pods("n-"+namespace, "web-1"))
	await(t, lines, fmt.Sprintf("added %[1]s/web-1 on n-%[1]s with 2 pods", namespace))
}

func TestRouter(t *testing.T) {
	s, namespace := sandboxtest.StartNamespace(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(config, fmt.Appendf(nil, `version: 1
cluster: {name: test}
listen: {probes: "127.0.0.1:0", api: "127.0.0.1:0"}
sources: {pods: {resource: v1/pods, namespaces: [%s]}}
handlers: {names: {short: {}}}
sinks: {team: {shout: {prefix: ALERT}}}
routes: [{name: a, from: pods, existing: deliver, handler: names, to: team}]
`, namespace), 0o600))
	lines := start(t, s, "router", "-config", config)
	s.Apply(t, namespace, pods("n1", "web-0"))
	await(t, lines, `ALERT "WEB-0"`)
}
