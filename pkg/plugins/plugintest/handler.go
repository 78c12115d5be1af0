package plugintest

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Handler is a kind of handler to test.
type Handler struct {
	Kind   plugins.HandlerKind
	Config string // YAML of a working handler; empty: the kind's example
	Env    plugins.HandlerEnv
}

// RunHandler tests that a kind of handler keeps the contract of [plugins.Handler] and
// [plugins.Kind].
func RunHandler(t *testing.T, h Handler) {
	t.Helper()
	if h.Config == "" {
		h.Config = h.Kind.Describe().Example
	}
	checkKind(t, h.Kind)
	t.Run("open and close", func(t *testing.T) {
		leakless(t)
		handler := h.open(t)
		for range 2 { // the contract requires one call; a second must do no harm
			if err := handler.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	t.Run("handles", func(t *testing.T) {
		leakless(t)
		handler := h.open(t)
		CheckHandled(t, handler, Deltas(t))
		CheckHandled(t, handler, nil)
		h.close(t, handler)
	})
	t.Run("several deltas of an object", func(t *testing.T) {
		leakless(t)
		handler := h.open(t)
		var batch []*event.Delta
		for v := range 20 {
			batch = append(batch, &event.Delta{Source: "pods", Op: event.Updated, Old: Pod(t, "hot", v+1, 100), New: Pod(t, "hot", v+2, 100)})
			batch = append(batch, Deltas(t)[v%5])
		}
		CheckHandled(t, handler, batch)
		h.close(t, handler)
	})
	t.Run("handles at the same time", func(t *testing.T) {
		leakless(t)
		handler := h.open(t)
		var workers sync.WaitGroup
		for range max(h.Env.Workers, 1) {
			workers.Go(func() {
				for range 5 {
					CheckHandled(t, handler, Deltas(t))
				}
			})
		}
		workers.Wait()
		h.close(t, handler)
	})
	t.Run("a context that is done", func(t *testing.T) {
		leakless(t)
		handler, batch := h.open(t), Deltas(t)
		within(t, "Handle", func() {
			if results, err := handler.Handle(cancelled(t), batch); err == nil && len(results) != len(batch) {
				t.Errorf("Handle returned %d results for %d deltas", len(results), len(batch))
			}
		})
		CheckHandled(t, handler, batch)
		h.close(t, handler)
	})
}

// CheckHandled passes a batch to the handler and tests the form of the results.
func CheckHandled(t *testing.T, handler plugins.Handler, batch []*event.Delta) {
	t.Helper()
	given := slices.Clone(batch)
	results, err := handler.Handle(t.Context(), batch)
	if err != nil {
		t.Errorf("Handle: %v", err)
		return
	}
	if !slices.Equal(given, batch) {
		t.Error("Handle modified the batch")
	}
	if len(results) != len(batch) {
		t.Errorf("Handle returned %d results for %d deltas", len(results), len(batch))
		return
	}
	for i, r := range results {
		checkResult(t, batch[i], r)
	}
}

func checkResult(t *testing.T, d *event.Delta, r plugins.Result) {
	t.Helper()
	switch r.Verdict {
	case plugins.OK, plugins.Drop:
		if r.Err != nil {
			t.Errorf("%s: verdict %s with the error %v", d, r.Verdict, r.Err)
		}
	case plugins.Retry, plugins.Fail:
		if r.Err == nil {
			t.Errorf("%s: verdict %s without an error", d, r.Verdict)
		}
	default:
		t.Errorf("%s: there is no verdict %d", d, r.Verdict)
	}
	if r.Verdict != plugins.OK && r.Events != nil {
		t.Errorf("%s: verdict %s with events", d, r.Verdict)
	}
	for k, e := range r.Events {
		if !json.Valid(e.Data) {
			t.Errorf("%s: the data of event %d is no JSON", d, k)
		}
	}
}

func (h *Handler) open(t *testing.T) plugins.Handler {
	t.Helper()
	handler, err := h.Kind.Open(t.Context(), Node(t, h.Config), h.Env)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return handler
}

func (*Handler) close(t *testing.T, handler plugins.Handler) {
	t.Helper()
	if err := handler.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}
