package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
)

// patience is how long a test waits for something that comes.
const patience = 30 * time.Second

// router is a running router and what it has written so far.
type router struct {
	cmd    *exec.Cmd
	probes string // URL

	mu      sync.Mutex
	changed *sync.Cond
	events  []cloudEvent
	stderr  bytes.Buffer
	exited  bool

	cutAge float64 // see cutSince
}

// cloudEvent is a line of the stdout sink.
type cloudEvent struct {
	ID                 string          `json:"id"`
	Type               string          `json:"type"`
	Source             string          `json:"source"`
	Subject            string          `json:"subject"`
	Route              string          `json:"route"`
	K8sUID             string          `json:"k8suid"`
	K8sResourceVersion string          `json:"k8sresourceversion"`
	Data               json.RawMessage `json:"data"`
}

// String is what tests compare: "route updated ns/name".
func (e cloudEvent) String() string {
	return e.Route + " " + strings.TrimPrefix(e.Type, "deltarouter.") + " " + e.Subject
}

// start runs the router with the configuration, to which version, cluster, probes and the sink out are added.
func start(t *testing.T, kubeconfig, config string, args ...string) *router {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	head := fmt.Sprintf("version: 1\ncluster: {name: test, kubeconfig: %q}\nstate: {dir: %q}\nlisten: {probes: \"127.0.0.1:0\"}\n",
		kubeconfig, filepath.Join(dir, "state"))
	if !strings.Contains(config, "sinks:") {
		head += "sinks: {out: {stdout: {}}}\n"
	}
	if err := os.WriteFile(file, []byte(head+config), 0o600); err != nil {
		t.Fatal(err)
	}
	return startFile(t, file, args...)
}

func startFile(t *testing.T, file string, args ...string) *router {
	t.Helper()
	r := &router{cmd: exec.Command(binary, append([]string{"-config", file}, args...)...)}
	r.changed = sync.NewCond(&r.mu)
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { r.readEvents(stdout) })
	readers.Go(func() { r.readLog(stderr) })
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		readers.Wait()
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("the router's log:\n%s", r.log())
		}
	})
	r.wait(t, "the address of the probes", func() bool { return r.probes != "" })
	return r
}

func (r *router) readEvents(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e cloudEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = cloudEvent{Type: "not JSON: " + lines.Text()}
		}
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

var probesAddress = regexp.MustCompile(`"msg":"listening","for":"probes","address":"([^"]+)"`)

func (r *router) readLog(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		r.mu.Lock()
		r.stderr.WriteString(line)
		if m := probesAddress.FindStringSubmatch(line); m != nil {
			r.probes = "http://" + m[1]
		}
		r.changed.Broadcast()
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *router) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

// wait waits until the condition holds, which is tried whenever the router writes something.
func (r *router) wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timeout := time.AfterFunc(patience, func() { r.mu.Lock(); r.changed.Broadcast(); r.mu.Unlock() })
	defer timeout.Stop()
	deadline := time.Now().Add(patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	for !holds() {
		if r.exited {
			t.Fatalf("the router ended while the test waited for %s", what)
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s; events: %q", what, summary(r.events))
		}
		r.changed.Wait()
	}
}

// expect waits until all the given events (see cloudEvent.String) have come, in any order, and returns every event so far.
func (r *router) expect(t *testing.T, want ...string) []cloudEvent {
	t.Helper()
	r.wait(t, fmt.Sprintf("%q", want), func() bool {
		left := summary(r.events)
		for _, w := range want {
			i := slices.Index(left, w)
			if i < 0 {
				return false
			}
			left = slices.Delete(left, i, i+1)
		}
		return true
	})
	return r.all()
}

func (r *router) all() []cloudEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// of returns, in order, the events about a subject.
func of(events []cloudEvent, subject string) (got []string) {
	for _, e := range events {
		if e.Subject == subject {
			got = append(got, e.String())
		}
	}
	return got
}

func summary(events []cloudEvent) []string {
	s := make([]string, len(events))
	for i, e := range events {
		s[i] = e.String()
	}
	return s
}

// ready waits until /readyz says so and returns what it says.
func (r *router) ready(t *testing.T) string {
	t.Helper()
	var body string
	poll(t, "readiness", func() bool {
		var code int
		code, body = r.get(t, "/readyz")
		return code == http.StatusOK
	})
	return body
}

func (r *router) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get(r.probes + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// stop ends the router with SIGTERM and returns its exit code.
func (r *router) stop(t *testing.T) int {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	state, err := r.cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return state.ExitCode()
}

// poll tries until the condition holds, for things that nobody announces.
func poll(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
