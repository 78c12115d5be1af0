package stdio_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// module returns the file of the guest of the tests.
func module(t testing.TB) string {
	t.Helper()
	return built.Command(t, "testdata/guest")
}

// router is the environment of handlers in a test.
type router struct {
	env plugins.HandlerEnv
	log *logged.Buffer
}

func newRouter(t testing.TB) *router {
	t.Helper()
	log := &logged.Buffer{}
	return &router{log: log, env: plugins.HandlerEnv{Env: plugins.Env{
		Name: "audit", Cluster: "test", Metrics: metrics.New(),
		// The clock stands still, so that no guest exceeds its time on a busy machine.
		Clock: timer.NewFake(time.Now()),
		Log:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, Workers: 1, Cache: built.Code(t)}}
}

func (r *router) tryOpen(t testing.TB, config string) (plugins.Handler, error) {
	t.Helper()
	k := stdio.Kind()
	if problems := k.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	return k.Open(t.Context(), plugintest.Node(t, config), r.env)
}

func (r *router) open(t testing.TB, config string) plugins.Handler {
	t.Helper()
	h, err := r.tryOpen(t, config)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, h.Close(context.WithoutCancel(t.Context()))) })
	return h
}

// mode returns the configuration of the guest with a behaviour.
func mode(t testing.TB, name, more string) string {
	t.Helper()
	return fmt.Sprintf("{module: %q, args: [%q%s}", module(t), name, more)
}

// pods returns a change of a pod with each of some names.
func pods(t testing.TB, names ...string) (deltas []*event.Delta) {
	t.Helper()
	for i, name := range names {
		deltas = append(deltas, &event.Delta{
			Source: "pods", Op: event.Updated, Old: plugintest.Pod(t, name, i+1, 10), New: plugintest.Pod(t, name, i+2, 10), Seen: time.Unix(1_700_000_000, 0),
		})
	}
	return deltas
}

// describe formats a result: its verdict, its error, and its events.
func describe(r plugins.Result) string {
	text := r.Verdict.String()
	if r.Err != nil {
		text += " " + r.Err.Error()
	}
	for _, e := range r.Events {
		text += fmt.Sprintf(" %s", e.Data)
	}
	return text
}

// handle passes changes of pods with some names, and returns the descriptions of the results.
func handle(t testing.TB, h plugins.Handler, names ...string) (all []string) {
	t.Helper()
	results, err := h.Handle(t.Context(), pods(t, names...))
	must.Succeed(t, err)
	for _, r := range results {
		all = append(all, describe(r))
	}
	return all
}
