package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// scoped answers the look-ups of the instance of a handler of an include.
type scoped struct{}

func (scoped) LookUp(_ context.Context, r *lookup.Request) (*lookup.Answer, error) {
	if r.Handler != "team/counter" {
		return nil, errors.New("unexpected request")
	}
	return &lookup.Answer{Count: 7}, nil
}

const included = `routes:
  - {name: counted, from: pods, to: receiver, handler: counter, retry: {attempts: 1, backoff: 10ms}, workers: {partitions: 2, pending: 32}}
`

// TestIncluded shows that workers handle the route of an included file with an instance of the
// handler that belongs to the include, and keep the route when the file gets a mistake.
func TestIncluded(t *testing.T) {
	// Guarantee: include-scope, include-mistakes
	t.Parallel()
	file := filepath.Join(t.TempDir(), "routes.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(included), 0o600))
	handlers := fakekind.Handler{
		Definition: fakekind.Define("count"),
		OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
			return counter{env}, nil
		},
	}
	f := newFleet(t, 2, fmt.Sprintf("handlers: {counter: {count: {}}}\n"+
		"include: [{name: team, files: %q, namespaces: default, sources: pods, sinks: receiver, handlers: counter, partitions: 2}]\n", file), handlers)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- lookup.Serve(ctx, f.conn, scoped{}) }()
	t.Cleanup(func() { cancel(); must.Report(t, <-served) })
	f.start()
	s := f.sink("team/counted")
	f.publish(s, 1, "a")
	f.receiver.until(t, "the first one", func(events []event.Event) bool { return len(events) == 1 })

	must.Succeed(t, os.WriteFile(file, []byte(strings.Replace(included, "retry", "rety", 1)), 0o600))
	broken, err := plan(t.Context(), f.options(), f.plan.Accepted)
	must.Succeed(t, err)
	poll(t, "the worker has read the file", func() bool { return slices.Contains(f.workers(), broken.Config.Hash) })
	f.publish(s, 2, "a")
	f.receiver.until(t, "one after the mistake", func(events []event.Event) bool { return len(events) == 2 })
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	for i, e := range f.receiver.events {
		if want := fmt.Sprintf(`{"n":%d,"found":7}`, i+1); string(e.Data) != want {
			t.Errorf("event %d has %s, want %s", i+1, e.Data, want)
		}
	}
	if checks := includeChecks(broken); len(checks) != 1 || checks[0].OK || checks[0].Name != "includes/team" || !strings.HasSuffix(checks[0].Message, "its former routes continue") {
		t.Errorf("checks %+v", checks)
	}
}
