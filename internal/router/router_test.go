package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// journal records the opened and closed components.
type journal struct {
	opening func() // called when a sink is opened; nil: not called
	mu      sync.Mutex
	lines   []string
	file    string // part of the configuration of each handler; empty: none
	secrets bool   // the configuration of a sink is {token: a secret}
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// part is a sink and a handler that only records its close.
type part struct {
	name    string
	journal *journal
}

func (p part) Write(context.Context, []event.Event) []error { return nil }
func (p part) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	return make([]plugins.Result, len(batch)), nil
}

func (p part) Close(context.Context) error {
	p.journal.add("close " + p.name)
	return nil
}

func fakeSinks(name string, open func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error)) fakekind.Sink {
	return fakekind.Sink{Definition: fakekind.Define(name), OpenFunc: open}
}

// fakeHandlerKind is a kind whose configuration includes the journal's file.
type fakeHandlerKind struct {
	fakekind.Handler

	j *journal
}

func (k fakeHandlerKind) Files(config.Node) []string { return []string{k.j.file} }

func fakeHandlers(j *journal, open func(context.Context, config.Node, plugins.HandlerEnv) (plugins.Handler, error)) plugins.HandlerKind {
	return fakeHandlerKind{fakekind.Handler{Definition: fakekind.Define("fake"), OpenFunc: open}, j}
}

// components are a sink and a handler of the kind "fake"; a handler named "broken" cannot be
// opened.
func components(j *journal) compile.Components {
	sinks := fakeSinks("fake", func(_ context.Context, _ config.Node, env plugins.SinkEnv) (plugins.Sink, error) {
		if j.opening != nil {
			j.opening()
		}
		j.add("open " + env.Name)
		return part{env.Name, j}, nil
	})
	if j.secrets {
		sinks.CheckFunc = checkToken
	}
	return compile.Components{
		Sinks: []plugins.SinkKind{sinks},
		Handlers: []plugins.HandlerKind{
			fakeHandlers(j, func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
				if env.Name == "broken" {
					return nil, errors.New("it is broken")
				}
				j.add(fmt.Sprintf("open %s for %d", env.Name, env.Workers))
				return part{env.Name, j}, nil
			}),
		},
		Emit: func(*cel.Program, cel.Cache, bool) plugins.Handler { return part{"emit", j} },
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// kubeconfig returns the path of a kubeconfig whose server does not exist.
func kubeconfig(t *testing.T) string {
	t.Helper()
	return write(t, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`)
}

const running = `version: 1
cluster: {name: test, kubeconfig: %q}
listen: {probes: "127.0.0.1:0"}
sources: {pods: {resource: v1/pods, namespaces: [a, b]}}
sinks: {one: {fake: {}}, two: {fake: {}}}
handlers: {h: {fake: {}}, unused: {fake: {}}%s}
routes:
  - {name: a, from: pods, handler: h, to: [one, two], concurrency: 3}
  - {name: b, from: pods, handler: h, to: one, concurrency: 2}
  - {name: c, from: pods, filter: list("pods").size() > 0, to: two}
`

// TestRunAndStop: without an API server, the router starts, says so, and stops in order without
// leaving goroutines or files behind.
func TestRunAndStop(t *testing.T) {
	var j journal
	log := &logged.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var loads, ends atomic.Int32
	loading := func() func() {
		loads.Add(1)
		return func() { ends.Add(1) }
	}
	go func() {
		ended <- router.Run(ctx, router.Options{
			Loading: loading,
			Config:  write(t, fmt.Sprintf(running, kubeconfig(t), "")), Components: components(&j), Version: "v0",
			Log: slog.New(slog.NewTextHandler(log, nil)), Stdout: io.Discard, DrainTimeout: time.Second,
		})
	}()
	address := ""
	for deadline := time.Now().Add(time.Minute); address == "" && time.Now().Before(deadline); {
		if m := regexp.MustCompile(`for=probes address=(\S+)`).FindStringSubmatch(log.String()); m != nil && strings.Contains(log.String(), "started") {
			address = m[1]
		}
	}
	code, body := get(t, "http://"+address+"/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "sources/pods") {
		t.Errorf("/readyz says %d\n%s", code, body)
	}
	if _, body := get(t, "http://"+address+"/metrics"); !strings.Contains(body, `deltarouter_build_info{version="v0"} 1`) {
		t.Error("/metrics lacks the version")
	}
	cancel()
	must.Report(t, <-ended)
	if loads.Load() != 1 || ends.Load() != 1 {
		t.Errorf("%d loads, of which %d ended", loads.Load(), ends.Load())
	}
	want := []string{"open one", "open two", "open h for 5", "close h", "close two", "close one"}
	if !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
	for _, line := range []string{"state.dir is not set", "unused"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	must.Succeed(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(body)
}

// TestOpenFails: components that were opened before are closed again, and the error names the
// place.
func TestOpenFails(t *testing.T) {
	var j journal
	text := strings.Replace(fmt.Sprintf(running, kubeconfig(t), ", broken: {fake: {}}"), "name: b, from: pods, handler: h", "name: b, from: pods, handler: broken", 1)
	err := router.Run(t.Context(), router.Options{
		Config: write(t, text), Components: components(&j), Log: slog.New(slog.DiscardHandler), Stdout: io.Discard,
	})
	if err == nil || err.Error() != "handlers.broken: it is broken" {
		t.Errorf("got error %v", err)
	}
	if want := []string{"open one", "open two", "close two", "close one"}; !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
}

func TestRunRefusesABadConfig(t *testing.T) {
	err := router.Run(t.Context(), router.Options{Config: write(t, "version: 2\n"), Log: slog.New(slog.DiscardHandler)})
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Errorf("got %v, want problems", err)
	}
}
