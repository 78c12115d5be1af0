// Package routertest runs the router's binary like a user, for tests: with a configuration file,
// its events on standard output, its log, probes and metrics. sandboxtest has the cluster.
//
//	func TestMain(m *testing.M) { routertest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		s := sandboxtest.Start(t)
//		ns := s.Namespace(t)
//		r := routertest.Start(t, s.Kubeconfig(), "sources: …")
//		r.Ready(t)
//		routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
//		r.Expect(t, "all added "+ns+"/a")
//	}
package routertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// Patience bounds the waits of tests.
const Patience = 2 * time.Minute

// maxLog bounds the part of each router's log, in bytes, that a failed test shows.
const maxLog = 16 << 10

// Router is a running router with its output so far. Its methods may be called from several
// goroutines.
type Router struct {
	cmd    *exec.Cmd
	file   string // the configuration
	probes string // URL

	mu      sync.Mutex
	changed *sync.Cond
	events  []Event
	stderr  bytes.Buffer
	exited  bool
	opened  bool
}

// Install writes a configuration, adds version, cluster, probes and a state folder, and returns its
// path. Several routers can use it one after the other.
func Install(t *testing.T, kubeconfig, config string) (file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "config.yaml")
	head := fmt.Sprintf("version: 1\ncluster: {name: test, kubeconfig: %q}\nstate: {dir: %q}\nlisten: {probes: \"127.0.0.1:0\"}\n",
		kubeconfig, filepath.Join(dir, "state"))
	must.Succeed(t, os.WriteFile(file, []byte(head+config), 0o600))
	return file
}

// Start runs the router with a configuration in the form of Install. If it has no sinks, the sink
// out writes to standard output.
func Start(t *testing.T, kubeconfig, config string, args ...string) *Router {
	t.Helper()
	if !strings.Contains(config, "sinks:") {
		config = "sinks: {out: {stdout: {}}}\n" + config
	}
	return StartFile(t, Install(t, kubeconfig, config), args...)
}

// StartFile runs the router with a configuration file, and returns when it is open. The
// router is killed at the end of the test.
func StartFile(t *testing.T, file string, args ...string) *Router {
	t.Helper()
	r := Launch(t, file, args...)
	r.wait(t, "the start", func() bool { return r.probes != "" && r.opened })
	return r
}

// Launch is StartFile without the wait.
func Launch(t *testing.T, file string, args ...string) *Router {
	t.Helper()
	return launch(t, &Router{file: file, cmd: Command(append([]string{"-config", file}, args...)...)})
}

// StartCommand is StartFile for a command of the caller, which runs another binary or in another
// environment.
func StartCommand(t *testing.T, cmd *exec.Cmd) *Router {
	t.Helper()
	r := launch(t, &Router{cmd: cmd})
	r.wait(t, "the start", func() bool { return r.probes != "" && r.opened })
	return r
}

func launch(t *testing.T, r *Router) *Router {
	t.Helper()
	r.changed = sync.NewCond(&r.mu)
	if r.cmd.Env == nil {
		r.cmd.Env = Environ(t)
	}
	stdout, err := r.cmd.StdoutPipe()
	must.Succeed(t, err)
	stderr, err := r.cmd.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, r.cmd.Start())
	var readers sync.WaitGroup
	readers.Go(func() { r.readEvents(stdout) })
	readers.Go(func() { r.readLog(stderr) })
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		readers.Wait()
		_ = r.cmd.Wait()
		if t.Failed() {
			log := r.Log()
			t.Logf("the router's log:\n%s", log[max(0, len(log)-maxLog):])
		}
	})
	return r
}

// readEvents reads standard output. It ignores an incomplete last line, which a SIGKILL can leave.
func (r *Router) readEvents(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			e = Event{Type: "not JSON: " + string(line)}
		}
		e.At = time.Now()
		r.mu.Lock()
		r.events = append(r.events, e)
		r.changed.Broadcast()
		r.mu.Unlock()
	}
	r.mu.Lock()
	r.exited = true
	r.changed.Broadcast()
	r.mu.Unlock()
}

// started matches the line that the router, or a standby, logs when it is open.
var started = regexp.MustCompile(`"msg":"(started|fleet: this member is a standby)"`)

var probesAddress = regexp.MustCompile(`"msg":"listening","for":"probes","address":"([^"]+)"`)

func (r *Router) readLog(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		r.mu.Lock()
		r.stderr.WriteString(line)
		if m := probesAddress.FindStringSubmatch(line); m != nil {
			r.probes = "http://" + m[1]
		}
		r.opened = r.opened || started.MatchString(line)
		r.changed.Broadcast()
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wait waits until the condition holds. It evaluates the condition, under the lock, whenever the
// router writes something.
func (r *Router) wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timeout := time.AfterFunc(Patience, func() { r.mu.Lock(); r.changed.Broadcast(); r.mu.Unlock() })
	defer timeout.Stop()
	deadline := time.Now().Add(Patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	for !holds() {
		if r.exited {
			t.Fatalf("the router ended while the test waited for %s", what)
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s; %d events, the last: %q", what, len(r.events), Summary(r.events[max(0, len(r.events)-100):]))
		}
		r.changed.Wait()
	}
}

// Wait waits until the condition holds for the events so far. The function must not keep them.
func (r *Router) Wait(t *testing.T, what string, holds func(events []Event) bool) {
	t.Helper()
	r.wait(t, what, func() bool { return holds(r.events) })
}

// WaitLog waits until the condition holds for the log so far.
func (r *Router) WaitLog(t *testing.T, what string, holds func(log string) bool) {
	t.Helper()
	r.wait(t, what, func() bool { return holds(r.stderr.String()) })
}

// Expect waits until all given events (see Event.String) have come, in any order, and returns all
// events so far.
func (r *Router) Expect(t *testing.T, want ...string) []Event {
	t.Helper()
	r.wait(t, fmt.Sprintf("%d events, %q", len(want), want[:min(len(want), 100)]), func() bool {
		if len(r.events) < len(want) {
			return false
		}
		left := make(map[string]int)
		for _, e := range r.events {
			left[e.String()]++
		}
		for _, w := range want {
			if left[w]--; left[w] < 0 {
				return false
			}
		}
		return true
	})
	return r.Events()
}

// Events returns the events so far.
func (r *Router) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Log returns the log so far.
func (r *Router) Log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

// Process returns the router's process, for signals.
func (r *Router) Process() *os.Process { return r.cmd.Process }

// Stop ends the router with SIGTERM and returns its exit code.
func (r *Router) Stop(t *testing.T) int {
	t.Helper()
	must.Succeed(t, r.cmd.Process.Signal(syscall.SIGTERM))
	return r.Ended(t)
}

// Kill ends the router with SIGKILL and returns when its whole output has been read.
func (r *Router) Kill(t *testing.T) {
	t.Helper()
	must.Succeed(t, r.cmd.Process.Kill())
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.exited {
		r.changed.Wait()
	}
}

// Ended waits for the end of a router that ends by itself, and returns its exit code.
func (r *Router) Ended(t *testing.T) int {
	t.Helper()
	done := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := r.cmd.Process.Wait()
		done <- state
	}()
	select {
	case state := <-done:
		return state.ExitCode()
	case <-time.After(Patience):
		t.Fatal("the router did not end")
		return 0
	}
}

// RunToEnd runs a router that is expected not to start, and returns its exit code and its output.
func RunToEnd(t *testing.T, file string) (code int, log string) {
	t.Helper()
	cmd := Command("-config", file)
	cmd.Env = Environ(t)
	stop := time.AfterFunc(Patience, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// Reload replaces the configuration like a ConfigMap mount does, or, with SIGHUP, like an editor
// does, and waits until the router has accepted or refused it.
func (r *Router) Reload(t *testing.T, file, config string, signal bool) {
	t.Helper()
	done := func(log string) int {
		return strings.Count(log, `"msg":"reloaded"`) + strings.Count(log, `"msg":"the configuration was not reloaded, and the former one continues"`)
	}
	before := done(r.Log())
	Exchange(t, file, config)
	if signal {
		must.Succeed(t, r.Process().Signal(syscall.SIGHUP))
	}
	r.WaitLog(t, "the reload", func(log string) bool { return done(log) > before })
}

// Exchange replaces a file atomically.
func Exchange(t *testing.T, file, text string) {
	t.Helper()
	beside := file + ".new"
	must.Succeed(t, os.WriteFile(beside, []byte(text), 0o600))
	must.Succeed(t, os.Rename(beside, file))
}
