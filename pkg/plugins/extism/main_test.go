package extism_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/extism"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// guest returns the file of the guest in testdata.
func guest(t testing.TB) string {
	t.Helper()
	return built.Module(t, "testdata/guest")
}

// host is the environment of handlers in a test.
type host struct {
	env plugins.HandlerEnv
	log *logged.Buffer
}

func newHost(t testing.TB) *host {
	t.Helper()
	log := &logged.Buffer{}
	return &host{log: log, env: plugins.HandlerEnv{Env: plugins.Env{
		Name: "notify", Cluster: "test", Metrics: metrics.New(), KV: kv.New(timer.NewFake(time.Now()), false),
		// The clock stands still, so that no handler exceeds its time on a busy machine.
		Clock: timer.NewFake(time.Now()),
		Log:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, Workers: 1, Lookup: onlyNodes{}, Cache: built.Code(t)}}
}

// onlyNodes has one node, n1.
type onlyNodes struct{}

func (onlyNodes) Get(source, _, name string) *event.Object {
	if source != "nodes" || name != "n1" {
		return nil
	}
	o, err := event.ParseObject(&event.Resource{Kind: "Node"}, `{"metadata":{"name":"n1"}}`)
	if err != nil {
		panic(err)
	}
	return o
}

func (n onlyNodes) Lookup(source, _, _ string) []*event.Object {
	return []*event.Object{n.Get(source, "", "n1")}
}

func (onlyNodes) Count(string, string, string) int { return 1 }

// tryOpen opens the guest with further configuration in flow style.
func (h *host) tryOpen(t testing.TB, more string) (plugins.Handler, error) {
	t.Helper()
	config := fmt.Sprintf("{module: %q, %s}", guest(t), more)
	k := extism.Kind()
	if problems := k.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	return k.Open(t.Context(), plugintest.Node(t, config), h.env)
}

func (h *host) open(t testing.TB, more string) plugins.Handler {
	t.Helper()
	handler, err := h.tryOpen(t, more)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, handler.Close(context.WithoutCancel(t.Context()))) })
	return handler
}

// deltas returns one change for each name of a pod.
func deltas(t testing.TB, names ...string) (all []*event.Delta) {
	t.Helper()
	for _, name := range names {
		all = append(all, &event.Delta{
			Source: "pods", Op: event.Updated, Old: plugintest.Pod(t, name, 1, 10), New: plugintest.Pod(t, name, 2, 10), Seen: time.Unix(1_700_000_000, 0),
		})
	}
	return all
}

// describe formats a result: its verdict, its error, and its events.
func describe(r plugins.Result) string {
	text := r.Verdict.String()
	if r.Err != nil {
		text += " " + r.Err.Error()
	}
	for _, e := range r.Events {
		text += fmt.Sprintf(" %s/%s=%s", e.Type, e.Subject, e.Data)
	}
	return text
}

// one returns the description of the result of one action.
func one(t testing.TB, h plugins.Handler, action string) string {
	t.Helper()
	results, err := h.Handle(t.Context(), deltas(t, action))
	must.Succeed(t, err)
	return describe(results[0])
}

// pod returns a pod with an annotation of a size.
func pod(t testing.TB, name string, size int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(plugintest.Pod(t, name, 1, 10).Resource(), fmt.Sprintf(`{"metadata":{"namespace":"default","name":%q,"annotations":{"a":%q}}}`, name, strings.Repeat("x", size)))
	must.Succeed(t, err)
	return o
}
