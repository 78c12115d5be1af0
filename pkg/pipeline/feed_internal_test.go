package pipeline

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// chain makes a pipeline in which a feeds b.
func chain(t *testing.T) *Pipeline {
	t.Helper()
	p, err := New(Config{Routes: []Route{
		{Name: "b", Fed: true, Ops: event.Ops(), Sinks: []NamedSink{{Name: "null", Sink: null{}}}},
		{Name: "a", Sources: []string{"s"}, Ops: event.Ops(), Sinks: []NamedSink{{Name: "to b", Feeds: "b"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type null struct{}

func (null) Write(context.Context, []event.Event) []error { return nil }
func (null) Close(context.Context) error                  { return nil }

// What was looked at first may have been given something since: it is looked at again.
func TestAnywhere(t *testing.T) {
	p := chain(t)
	looked := 0
	found := p.anywhere(func(*route) bool {
		if looked++; looked == 2 {
			p.handed.Add(1)
		}
		return looked > 2
	})
	if !found || looked != 3 {
		t.Errorf("%v after %d looks", found, looked)
	}
	if p.anywhere(func(*route) bool { looked++; return false }) || looked != 5 {
		t.Errorf("%d looks", looked)
	}
}

// An event counts as memory, and what is fed is not cut down, since nothing folds it.
func TestFedSize(t *testing.T) {
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x"},"x":"`+strings.Repeat("x", 1000)+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	d := &event.Delta{Source: "s", Op: event.Deleted, Old: o}
	fed := event.Feed(d, &event.Event{Data: make([]byte, 5000)})
	if size(fed)-size(d) != 5000 {
		t.Errorf("%d and %d bytes", size(fed), size(d))
	}
	if shrink(d) == d || shrink(fed) != fed {
		t.Error("what is fed is cut down, or what is not is not")
	}
}

// A worker that was given up feeds nothing more: what its route owes is another's by then.
func TestBereft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chain(t)
		p.route("a").bereft = true
		p.Start(t.Context())
		o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x","uid":"u"}}`)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := p.Admit(t.Context(), &event.Delta{Source: "s", Op: event.Added, New: o, Seen: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		commit()
		time.Sleep(time.Minute)
		synctest.Wait()
		if a, b := p.Owed("a"), p.Owed("b"); a != 1 || b != 0 || p.handed.Load() != 0 {
			t.Errorf("a owes %d, b %d", a, b)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
