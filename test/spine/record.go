package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
	"github.com/deltarouter/deltarouter/test/spine/trace"
)

const (
	patience = 2 * time.Minute        // bounds each wait
	poll     = 20 * time.Millisecond  // between two looks at the state file or at the number of records
	quiet    = 400 * time.Millisecond // without records: the cut has ended, and the next one is due later
	idleTime = 3 * time.Second        // of the idle window; cuts come each second
)

// config is the route that the delta takes. The first %q is the kubeconfig, then come the folder of
// the state and the URL of the webhook.
const config = `version: 1
cluster: {name: spine, kubeconfig: %q}
state: {dir: %q}
sources: {pods: {resource: v1/pods, namespaces: default}}
sinks: {hook: {webhook: {url: %q, mode: structured}}}
routes: [{name: web, from: pods, filter: object.metadata.labels.app == "web", existing: deliver, to: hook}]
`

// windows are the records of the idle router and those of the delta.
type windows struct{ idle, delta []trace.Record }

// record builds the router with the overlay, runs it on an API server, and returns the way of the
// delta.
func record(ctx context.Context, root string, log io.Writer) ([]goroutine, error) {
	dir, err := os.MkdirTemp("", "spine-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, s, err := writeOverlay(root, dir)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(log, "building the router with", len(s.functions), "functions that record their calls")
	binary := filepath.Join(dir, "router")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-overlay", overlay, "-o", binary, "./cmd/router")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build -overlay: %w\n%s", err, out)
	}
	fmt.Fprintln(log, "starting an API server")
	w, err := follow(ctx, dir, binary)
	if err != nil {
		return nil, err
	}
	return build(s, w), nil
}

// follow runs the cluster, the webhook and the router, and records both windows.
func follow(ctx context.Context, dir, binary string) (*windows, error) {
	if err := os.Mkdir(filepath.Join(dir, "cluster"), 0o700); err != nil {
		return nil, err
	}
	cluster, err := sandboxtest.Launch(filepath.Join(dir, "cluster"), sandboxtest.Options{})
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	pods := cluster.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
	if _, err := pods.Create(ctx, pod(), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	delivered := make(chan []byte, 100)
	hook := httptest.NewServer(webhook(delivered))
	defer hook.Close()

	p := &process{dir: dir, state: filepath.Join(dir, "state"), socket: filepath.Join(dir, "socket"), pods: pods, delivered: delivered}
	stop, err := p.start(ctx, binary, fmt.Sprintf(config, cluster.Kubeconfig(), p.state, hook.URL))
	if err != nil {
		return nil, err
	}
	defer stop()
	w, err := p.windows(ctx)
	if err != nil {
		output, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, fmt.Errorf("%w; the router's log:\n%s", err, output)
	}
	return w, nil
}

// pod returns the pod whose update is followed.
func pod() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "web"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "example.com/web:1"}}},
	}}
}

// webhook sends the body of each request to a channel, after it has answered.
func webhook(delivered chan<- []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		delivered <- body
	})
}

// process is the running router with its surroundings.
type process struct {
	dir, state, socket string
	pods               dynamic.ResourceInterface
	delivered          <-chan []byte
	updates            int

	connection net.Conn
	answers    *bufio.Reader
}

// start starts the router. Its output goes to the file log.
func (p *process) start(ctx context.Context, binary, config string) (stop func(), err error) {
	file := filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return nil, err
	}
	router := exec.CommandContext(ctx, binary, "-config", file)
	router.Stdout, router.Stderr, router.Env = log, log, append(os.Environ(), trace.Variable+"="+p.socket)
	if err := router.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() {
		if p.connection != nil {
			_ = p.connection.Close()
		}
		_ = router.Process.Kill()
		_ = router.Wait()
		_ = log.Close()
	}, nil
}

// windows warms the router up with two updates, and records the idle router and the third update.
func (p *process) windows(ctx context.Context) (w *windows, err error) {
	if err := p.arrived(ctx); err != nil { // the existing pod
		return nil, err
	}
	for range 2 {
		if err := p.change(ctx); err != nil {
			return nil, err
		}
		if err := p.unchanged(ctx); err != nil {
			return nil, err
		}
	}
	if p.connection, err = new(net.Dialer).DialContext(ctx, "unix", p.socket); err != nil {
		return nil, err
	}
	p.answers = bufio.NewReader(p.connection)
	w = &windows{}
	w.idle, err = p.record(func() error { return wait(ctx, time.After(idleTime)) })
	if err != nil {
		return nil, err
	}
	w.delta, err = p.record(func() error {
		if err := p.change(ctx); err != nil {
			return err
		}
		return p.settled(ctx)
	})
	return w, err
}

// change updates the pod, and waits until the webhook has the event and a cut is on disk.
func (p *process) change(ctx context.Context) error {
	before, err := p.written()
	if err != nil {
		return err
	}
	if err := p.update(ctx); err != nil {
		return err
	}
	if err := p.arrived(ctx); err != nil {
		return err
	}
	return until(ctx, "a cut", func() (bool, error) {
		now, err := p.written()
		return now.After(before), err
	})
}

// update changes an annotation of the pod.
func (p *process) update(ctx context.Context) error {
	p.updates++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"update":"%d"}}}`, p.updates)
	_, err := p.pods.Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// arrived waits until the webhook has an event.
func (p *process) arrived(ctx context.Context) error {
	select {
	case <-p.delivered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return errors.New("the webhook got nothing")
	}
}

// written returns the time of the last change of a file in the state folder.
func (p *process) written() (last time.Time, err error) {
	err = filepath.WalkDir(p.state, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return err
	})
	return last, err
}

// unchanged waits until the state has been as it is for the time of the idle window.
func (p *process) unchanged(ctx context.Context) error {
	return until(ctx, "a state folder without changes", func() (bool, error) {
		last, err := p.written()
		return time.Since(last) > idleTime, err
	})
}

// settled waits until nothing has been recorded for a while.
func (p *process) settled(ctx context.Context) error {
	last, since := -1, time.Now()
	return until(ctx, "an idle router", func() (bool, error) {
		answer, err := p.ask(trace.Count)
		if err != nil {
			return false, err
		}
		count, err := strconv.Atoi(string(answer))
		if count != last {
			last, since = count, time.Now()
		}
		return time.Since(since) > quiet, err
	})
}

// record opens the window, does something, and returns the records.
func (p *process) record(do func() error) (records []trace.Record, err error) {
	if _, err := p.ask(trace.Begin); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	answer, err := p.ask(trace.End)
	if err != nil {
		return nil, err
	}
	return records, json.Unmarshal(answer, &records)
}

// ask sends a request to package trace, and returns its answer.
func (p *process) ask(request string) (answer []byte, err error) {
	if _, err := fmt.Fprintln(p.connection, request); err != nil {
		return nil, err
	}
	answer, err = p.answers.ReadBytes('\n')
	return bytes.TrimSuffix(answer, []byte("\n")), err
}

// until waits until the condition holds.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	deadline := time.After(patience)
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
}

func wait(ctx context.Context, over <-chan time.Time) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
