package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// recordingSink records its events. refuse may return an error for an event.
type recordingSink struct {
	refuse func(event.Event) error
	before func(context.Context) // called at the start of each Write
	// inOrder: within a Write, events of a key behind a refused one are not taken.
	inOrder bool

	mu     sync.Mutex
	events []event.Event
	writes []int // the number of events of each Write
}

func (s *recordingSink) Write(ctx context.Context, events []event.Event) []error {
	if s.before != nil {
		s.before(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, len(events))
	errs, failed := make([]error, len(events)), false
	refused := map[string]error{}
	for i, e := range events {
		if errs[i] = refused[e.OrderKey()]; errs[i] != nil {
			continue
		}
		if s.refuse != nil {
			if errs[i] = s.refuse(e); errs[i] != nil {
				failed = true
				if s.inOrder && plugins.ClassOf(errs[i]) != plugins.Rejected {
					refused[e.OrderKey()] = errs[i]
				}
				continue
			}
		}
		s.events = append(s.events, e)
	}
	if !failed {
		return nil
	}
	return errs
}

func (s *recordingSink) Close(context.Context) error { return nil }

// got lists the events of the sink: subject@resourceVersion.
func (s *recordingSink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, e := range s.events {
		list = append(list, e.Type[len(event.TypePrefix):]+" "+e.Subject[len("default/"):]+"@"+e.K8sResourceVersion)
	}
	return list
}

// wrote lists the number of events of each Write.
func (s *recordingSink) wrote() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// handlerFunc implements plugins.Handler with a function.
type handlerFunc func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error)

func (h handlerFunc) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	return h(ctx, batch)
}
func (h handlerFunc) Close(context.Context) error { return nil }

// handleEach returns a handler for a function of one delta.
func handleEach(f func(d *event.Delta) plugins.Result) handlerFunc {
	return func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
		results := make([]plugins.Result, len(batch))
		for i, d := range batch {
			results[i] = f(d)
		}
		return results, nil
	}
}

func ok(*event.Delta) plugins.Result {
	return plugins.Result{Events: []plugins.Emit{{Data: []byte(`{}`)}}}
}

// fakeDeadLetters records dead letters.
type fakeDeadLetters struct {
	refuse func(checkpoint.Letter) error
	mu     sync.Mutex
	all    []checkpoint.Letter
	writes int
	gone   []uint64
}

func (l *fakeDeadLetters) Add(_ context.Context, letters []checkpoint.Letter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		for _, letter := range letters {
			if err := l.refuse(letter); err != nil {
				return err
			}
		}
	}
	l.writes++
	for _, letter := range letters {
		letter.ID = uint64(len(l.all) + 1)
		l.all = append(l.all, letter)
	}
	return nil
}

func (l *fakeDeadLetters) Remove(_ context.Context, ids []uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, ids...)
	return len(ids), nil
}

func (l *fakeDeadLetters) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []string{}
	for _, letter := range l.all {
		list = append(list, fmt.Sprintf("%s@%s %s", letter.Delta.Key().Name, letter.Delta.Object().ResourceVersion(), letter.Sink))
	}
	return list
}

// blockingSink is a sink that takes nothing until it is opened.
func blockingSink() (s *recordingSink, open func()) {
	c := make(chan struct{})
	return &recordingSink{before: func(ctx context.Context) {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}}, func() { close(c) }
}
