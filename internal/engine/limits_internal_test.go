package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// subjects is a sink that records its deliveries.
type subjects struct {
	mu   sync.Mutex
	list []string
}

func (s *subjects) Write(_ context.Context, events []event.Event) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.list = append(s.list, e.Subject)
	}
	return nil
}

func (s *subjects) Close(context.Context) error { return nil }

// TestLimitOfACut: the state of a limit is written together with the backlog of its route, and is
// restored, also under another name of the route, and with an empty backlog.
func TestLimitOfACut(t *testing.T) {
	// Guarantee: limit-kept
	path, clock := filepath.Join(t.TempDir(), "state.db"), timer.NewFake(time.Now())
	out := &subjects{}
	live := func(route *config.Route, start bool) (*State, func()) {
		t.Helper()
		db, err := checkpoint.Open(checkpoint.Config{Path: path})
		must.Succeed(t, err)
		s := &State{db: db, factory: informer.New(informer.Config{Log: slog.New(slog.DiscardHandler)}), log: slog.New(slog.DiscardHandler)}
		s.memories = NewMemories(nil, timer.NewFake(time.Now()))
		s.Resolve(func(string) *event.Resource { return nil })
		all := func(context.Context, *event.Delta) (string, error) { return "all", nil }
		s.pipeline, err = pipeline.New(pipeline.Config{Store: s, Clock: clock, Routes: []spec.Settings{{
			Name: route.Name, ID: route.ID, Sources: []string{"s"}, Ops: event.Ops(), Limit: spec.Limit{Key: all, Every: time.Hour},
			Sinks: []spec.NamedSink{{Name: "out", Sink: out}},
		}}})
		if err == nil {
			err = s.restoreRoute(route)
		}
		must.Succeed(t, err)
		if start {
			s.pipeline.Start(t.Context())
		}
		return s, func() {
			must.Report(t, s.pipeline.Close(t.Context()))
			must.Report(t, db.Close())
		}
	}
	admit := func(s *State, name string) {
		t.Helper()
		commit, err := s.pipeline.Admit(t.Context(), &event.Delta{Source: "s", Op: event.Added, New: thing(t, "things", name, name, "1"), Seen: clock.Now()})
		must.Succeed(t, err)
		commit.Commit()
	}
	cut := func(s *State) {
		t.Helper()
		must.Succeed(t, s.db.Write(s.Collect(func() {})))
	}
	old := &config.Route{Name: "old", ID: "old", Queue: config.Queue{Memory: 10}}

	s, crash := live(old, false)
	admit(s, "a")
	admit(s, "b")
	cut(s)
	crash()

	s, crash = live(old, true)
	admit(s, "c")
	must.Succeed(t, s.pipeline.WaitDelivered(t.Context()))
	cut(s)
	crash()

	s, crash = live(&config.Route{Name: "new", ID: "old", Queue: config.Queue{Memory: 10}}, true)
	defer crash()
	admit(s, "d")
	clock.Advance(clock.Now().Add(time.Hour))
	admit(s, "e")
	cut(s)
	owed, err := s.db.LoadRoute("old", checkpoint.Part{}, func(string) *event.Resource { return nil })
	if err != nil || len(owed) > 1 || len(owed) == 1 && owed[0].Delta.Suppressed != 3 {
		t.Errorf("%d are owed, %v", len(owed), err)
	}
	must.Succeed(t, s.pipeline.WaitDelivered(t.Context()))
	if want := []string{"ns/a", "ns/e"}; !slices.Equal(out.list, want) {
		t.Errorf("got %q, want %q", out.list, want)
	}
	if other, err := s.db.LoadRules("new"); err != nil || len(other) > 0 {
		t.Errorf("under the name are %d records, %v", len(other), err)
	}
}
