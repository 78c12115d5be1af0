package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/router/worker"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/fakekind"
)

const (
	hopRole    = "hop" // the argument that makes this command a worker; its configuration follows
	hopPending = 256
	hopRoute   = "hop"

	hopPartitions = 8
)

// arrival is the account of a worker: its CPU, the deltas that have reached its sink, and their
// latencies from the leader's write to the worker's sink.
type arrival struct {
	CPU      time.Duration
	Count    int
	P50, P99 time.Duration
}

// arrivals is the sink of the worker. It counts events, and answers when all have come.
type arrivals struct {
	mu      sync.Mutex
	left    int
	since   time.Duration // CPU at the begin
	latency []time.Duration
	count   int // since the start
}

// Write implements [plugins.Sink].
func (a *arrivals) Write(_ context.Context, events []event.Event) []error {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count += len(events); a.left <= 0 {
		return nil
	}
	for i := range events {
		a.latency = append(a.latency, now.Sub(events[i].Of.Seen))
	}
	if a.left -= len(events); a.left == 0 {
		go a.answer() // when the last deltas are acknowledged
	}
	return nil
}

// Close implements [plugins.Sink].
func (a *arrivals) Close(context.Context) error { return nil }

func (a *arrivals) expect(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left, a.since, a.latency = n, cpu(), make([]time.Duration, 0, n)
}

func (a *arrivals) answer() {
	time.Sleep(settle / 10)
	a.mu.Lock()
	defer a.mu.Unlock()
	used := cpu() - a.since
	slices.Sort(a.latency)
	at := func(percent int) time.Duration { return a.latency[len(a.latency)*percent/100] }
	_ = json.NewEncoder(os.Stdout).Encode(arrival{used, len(a.latency), at(50), at(99)})
}

// sofar answers with the account since the start.
func (a *arrivals) sofar() {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(arrival{CPU: cpu(), Count: a.count})
}

// serveHop runs a worker until standard input ends. For each number on standard input it answers
// when so many deltas have reached its sink, and for 0 with its account since the start.
func serveHop(file string) error {
	sink := &arrivals{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var n int
			_, _ = fmt.Sscan(lines.Text(), &n)
			if n == 0 {
				sink.sofar()
				continue
			}
			sink.expect(n)
			fmt.Println("{}")
		}
	}()
	return worker.Run(ctx, worker.Options{
		Config: file, Components: hopKinds(sink), Log: slog.New(slog.DiscardHandler), DrainTimeout: settle,
	})
}

// hopKinds has the kinds of the sink, and of the guest of compareScaling.
func hopKinds(sink plugins.Sink) compile.Components {
	return compile.Components{Emit: emit.New, Handlers: []plugins.HandlerKind{wasm.Kind()}, Sinks: []plugins.SinkKind{fakekind.Sink{
		Definition: fakekind.Define("arrivals"),
		OpenFunc:   func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) { return sink, nil },
	}}}
}

// hopWorker is the process of a worker.
type hopWorker struct {
	cmd     *exec.Cmd
	asks    func(n int) error
	close   func() error
	answers *json.Decoder
}

// startHop starts a worker with a configuration.
func startHop(file string, env ...string) (*hopWorker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, hopRole, file)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w := &hopWorker{cmd: cmd, answers: json.NewDecoder(out), close: in.Close}
	w.asks = func(n int) error { _, err := fmt.Fprintln(in, n); return err }
	return w, cmd.Start()
}

// expect tells the worker the number of deltas that it will get.
func (w *hopWorker) expect(n int) error {
	if err := w.asks(n); err != nil {
		return err
	}
	return w.answers.Decode(new(struct{}))
}

// arrived waits until the worker has them.
func (w *hopWorker) arrived() (a arrival, err error) {
	err = w.answers.Decode(&a)
	return a, err
}

// sofar returns the account of the worker since its start.
func (w *hopWorker) sofar() (a arrival, err error) {
	if err = w.asks(0); err == nil {
		err = w.answers.Decode(&a)
	}
	return a, err
}

func (w *hopWorker) stop() {
	_ = w.close()
	_ = w.cmd.Wait()
}

// hopRun describes a route with workers.
type hopRun struct {
	Guest               string // file of its handler; empty: it has none
	Partitions, Pending int
}

// config writes the configuration of the worker.
func (r hopRun) config(dir string, urls []string) (file string, err error) {
	servers, err := json.Marshal(urls)
	if err != nil {
		return "", err
	}
	handlers, handler := "", ""
	if r.Guest != "" {
		handlers, handler = fmt.Sprintf("guest: {wasm: {module: %q}}", r.Guest), ", handler: guest"
	}
	file = filepath.Join(dir, "config.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, `version: 1
cluster: {name: bench}
state: {dir: %q}
fleet: {name: bench, lease: 6s, replicas: 3, nats: {servers: %s}}
sources: {pods: {resource: v1/pods}}
sinks: {arrivals: {arrivals: {}}}
handlers: {%s}
routes: [{name: %s, from: pods, to: arrivals, workers: {partitions: %d, pending: %d}%s}]
`, filepath.Join(dir, "state"), servers, handlers, hopRoute, r.Partitions, r.Pending, handler), 0o600)
}
