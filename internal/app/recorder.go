package app

import (
	"context"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// recorder takes the place of all sinks, and of the dead letters, and remembers what comes. It is safe for concurrent use.
type recorder struct {
	clock timer.Clock

	mu   sync.Mutex
	came []Outcome
}

var _ pipeline.DeadLetterer = (*recorder)(nil)

// factories makes sinks of the same kinds, that are checked alike, and record.
func (r *recorder) factories(actual []plugins.Factory[plugins.Sink]) []plugins.Factory[plugins.Sink] {
	recording := make([]plugins.Factory[plugins.Sink], len(actual))
	for i, f := range actual {
		recording[i] = plugins.Factory[plugins.Sink]{
			Kind: f.Kind, Example: f.Example, Check: f.Check,
			Open: func(_ context.Context, _ config.Node, env plugins.Env) (plugins.Sink, error) {
				return recordingSink{r, env.Name}, nil
			},
		}
	}
	return recording
}

// given remembers what a route gave to another.
func (r *recorder) given(route string, sink pipeline.NamedSink, events []event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		e.Data = slices.Clone(e.Data)
		r.came = append(r.came, Outcome{Time: r.clock.Now(), Route: route, Sink: sink.Name, Event: e})
	}
}

func (r *recorder) take() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := r.came
	r.came = nil
	return came
}

// Add implements pipeline.DeadLetterer.
func (r *recorder) Add(_ context.Context, letters []checkpoint.Letter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range letters {
		r.came = append(r.came, Outcome{Time: r.clock.Now(), Route: letters[i].Route, Sink: letters[i].Sink, Error: letters[i].Error})
	}
	return nil
}

// Remove implements pipeline.DeadLetterer. Nothing is put through again.
func (r *recorder) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// recordingSink is one sink of the configuration.
type recordingSink struct {
	r    *recorder
	name string
}

// Write implements plugins.Sink.
func (s recordingSink) Write(_ context.Context, events []event.Event) []error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, e := range events {
		e.Data = slices.Clone(e.Data)
		s.r.came = append(s.r.came, Outcome{Time: s.r.clock.Now(), Route: e.Route, Sink: s.name, Event: e})
	}
	return nil
}

// Close implements plugins.Sink.
func (s recordingSink) Close(context.Context) error { return nil }
