package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// busyHandler is a handler whose calls end when they are cancelled.
type busyHandler struct {
	mu      sync.Mutex
	running int
}

func (h *busyHandler) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

func (h *busyHandler) Handle(ctx context.Context, _ []*event.Delta) ([]plugins.Result, error) {
	h.mu.Lock()
	h.running++
	h.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (*busyHandler) Close(context.Context) error { return nil }

func (*busyHandler) Timeout() time.Duration { return time.Minute }

// TestCallsOfAScope shows that the routes of an include cannot use more simultaneous calls of a
// handler than its instance is opened for, whatever their number is. The routes of the
// configuration itself can.
func TestCallsOfAScope(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	routes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "  - {name: r%d, from: pods, handler: h, concurrency: 16, to: a}\n", i)
		}
		return b.String()
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "team.yaml"), []byte("routes:\n"+routes(5)), 0o600))
	text := fmt.Sprintf("version: 1\nsources: {pods: {resource: v1/pods}}\nhandlers: {h: {fake: {}}}\nsinks: {a: {fake: {}}}\n"+
		"include: [{name: team, files: %s, namespaces: ns, sources: pods, sinks: a, handlers: h}]\nroutes:\n%s", filepath.Join(dir, "team.yaml"), routes(5))
	env, workers, busy := (&recorder{}).env(), make(map[string]int), &busyHandler{}
	env.Components.Handlers = []plugins.HandlerKind{fakekind.Handler{
		Definition: fakekind.Define("fake"), CheckFunc: func(config.Node) config.Problems { return nil },
		OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
			workers[env.Name] = env.Workers
			return busy, nil
		},
	}}
	p := planIn(t, env, dir, text)
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(env, p)
		must.Succeed(t, e.OpenSet(t.Context()))
		e.OpenFactory(nil)
		if workers["h"] != 80 || workers["team/h"] != 32 {
			t.Errorf("opened for %v calls", workers)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, r := range e.Set.Routes() {
			if _, ok := r.Handler.(plugins.Timed); !ok {
				t.Errorf("%s: the time limit of the handler is lost", r.Name)
			}
			if !strings.HasPrefix(r.Name, "team/") {
				continue
			}
			for range 16 {
				all.Go(func() {
					if _, err := r.Handler.Handle(ctx, nil); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}
		}
		synctest.Wait()
		if n := busy.count(); n != 32 {
			t.Errorf("%d calls run", n)
		}
		cancel()
		all.Wait()
	})
}
