package budgets_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// life is one run of the router. It belongs to a bubble of testing/synctest, so that no timer fires
// while there is work, however slow the machine is.
type life struct {
	t      *testing.T
	server *server
	sink   *sink
	cancel context.CancelFunc
	done   chan error
}

// begin starts the router, and returns when it has all objects and waits.
func begin(t *testing.T, file string, s *server) *life {
	t.Helper()
	client, err := informer.NewClientFor(&rest.Config{Host: "http://cluster", Transport: s})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l := &life{t: t, server: s, sink: &sink{}, cancel: cancel, done: make(chan error, 1)}
	go func() {
		l.done <- router.Run(ctx, router.Options{
			Config: file, Version: "budgets", Log: slog.New(slog.DiscardHandler), DrainTimeout: time.Second,
			Components: compile.Components{
				Handlers: []plugins.HandlerKind{wasm.Kind()}, Sinks: []plugins.SinkKind{l.sink.kind()}, Emit: emit.New,
			},
			Dependencies: router.Dependencies{Client: client},
		})
	}()
	l.rest()
	return l
}

// rest waits until everything is done, a cut included.
func (l *life) rest() {
	time.Sleep(1500 * time.Millisecond)
	synctest.Wait()
}

// update sends n updates, and waits until they are done.
func (l *life) update(n int) {
	if n > 0 {
		l.server.requests <- n
	}
	l.rest()
}

func (l *life) stop() {
	l.t.Helper()
	l.cancel()
	must.Succeed(l.t, <-l.done)
}

// sink counts the events. It allocates nothing.
type sink struct {
	events atomic.Int64
}

func (s *sink) kind() plugins.SinkKind {
	return fakekind.Sink{
		Definition: fakekind.Define("count"),
		OpenFunc:   func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) { return s, nil },
	}
}

// Write implements [plugins.Sink].
func (s *sink) Write(_ context.Context, events []event.Event) []error {
	s.events.Add(int64(len(events)))
	return nil
}

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error { return nil }

// write writes a configuration with a source, a sink and the given rest, and returns its path.
func write(t *testing.T, rest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	const common = "version: 1\ncluster: {name: budgets}\nsources: {pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}}\nsinks: {out: {count: {}}}\n"
	must.Succeed(t, os.WriteFile(file, []byte(common+rest), 0o600))
	return file
}

// route is the configuration of a route. Its batches have one delta, so that their number does not
// depend on the order of goroutines.
func route(settings string) string {
	return fmt.Sprintf("routes: [{name: r, from: pods, to: out, batch: {size: 1}, %s}]\n", settings)
}
