package plugintest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Sink is a kind of sink to test.
type Sink struct {
	Kind   plugins.SinkKind
	Config string // YAML of a working sink; empty: the kind's example
	Env    plugins.SinkEnv
	// Data makes the data of the events, for a sink that does not accept all JSON. nil:
	// [event.Payload] of the deltas.
	Data func(d *event.Delta) []byte
}

// RunSink tests that a kind of sink keeps the contract of [plugins.Sink] and [plugins.Kind].
func RunSink(t *testing.T, s Sink) {
	t.Helper()
	if s.Config == "" {
		s.Config = s.Kind.Describe().Example
	}
	checkKind(t, s.Kind)
	t.Run("open and close", func(t *testing.T) {
		leakless(t)
		sink := s.open(t)
		for range 2 { // the contract requires one call; a second must do no harm
			if err := sink.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	t.Run("writes", func(t *testing.T) {
		leakless(t)
		sink := s.open(t)
		checkWritten(t, sink, s.events(t))
		checkWritten(t, sink, nil)
		s.close(t, sink)
	})
	t.Run("writes at the same time", func(t *testing.T) {
		leakless(t)
		sink := s.open(t)
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				for range 5 {
					checkWritten(t, sink, s.events(t))
				}
			})
		}
		writers.Wait()
		s.close(t, sink)
	})
	t.Run("several events of a key", s.checkKeys)
	t.Run("a context that is done", func(t *testing.T) {
		leakless(t)
		sink, events := s.open(t), s.events(t)
		within(t, "Write", func() {
			if errs := sink.Write(cancelled(t), events); errs != nil && len(errs) != len(events) {
				t.Errorf("Write returned %d errors for %d events", len(errs), len(events))
			}
		})
		checkWritten(t, sink, events)
		s.close(t, sink)
	})
}

// checkKeys tests that an ordered sink keeps the order of each key, even if its context ends during
// a Write.
func (s *Sink) checkKeys(t *testing.T) {
	if _, ordered := s.Kind.(plugins.Ordered); !ordered {
		t.Skip("a write has one delta of each key")
	}
	leakless(t)
	sink, events := s.open(t), slices.Concat(s.events(t), s.events(t), s.events(t))
	for i := range events {
		events[i].ID += "-" + strconv.Itoa(i)
		events[i].Key = "key " + strconv.Itoa(i%3)
	}
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*10*time.Microsecond)
		CheckOrder(t, events, sink.Write(ctx, events))
		cancel()
	}
	checkWritten(t, sink, events)
	s.close(t, sink)
}

// CheckOrder tests that no event of a key was delivered after an event of that key that will be
// retried.
func CheckOrder(t testing.TB, events []event.Event, errs []error) {
	t.Helper()
	waits := map[string]int{}
	for i, err := range errs {
		key := events[i].OrderKey()
		switch first, ok := waits[key]; {
		case err == nil && ok:
			t.Errorf("event %d was delivered, although %d of its key has to come again: %v", i, first, errs[first])
		case err != nil && plugins.ClassOf(err) != plugins.Rejected && !ok:
			waits[key] = i
		}
	}
}

// events returns an event for each of [Deltas].
func (s *Sink) events(t *testing.T) []event.Event {
	t.Helper()
	events := Events(t)
	for i := range events {
		if s.Data != nil {
			events[i].Data = s.Data(events[i].Of)
		}
	}
	return events
}

func (s *Sink) open(t *testing.T) plugins.Sink {
	t.Helper()
	sink, err := s.Kind.Open(t.Context(), Node(t, s.Config), s.Env)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return sink
}

func (*Sink) close(t *testing.T, sink plugins.Sink) {
	t.Helper()
	if err := sink.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func checkWritten(t *testing.T, sink plugins.Sink, events []event.Event) {
	t.Helper()
	errs := sink.Write(t.Context(), events)
	if errs != nil && len(errs) != len(events) {
		t.Errorf("Write returned %d errors for %d events", len(errs), len(events))
	}
	for i, err := range errs {
		if err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
}
