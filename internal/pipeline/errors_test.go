package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestErrorsAreBounded: error texts of a handler or a sink are short and printable in all outputs.
func TestErrorsAreBounded(t *testing.T) {
	// Guarantee: answers-leak
	hostile := errors.New(strings.Repeat("\x1b[2J\n", 1<<20))
	ofHandler := func(*event.Delta) plugins.Result {
		return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(hostile)}
	}
	ends := handlerFunc(func(context.Context, []*event.Delta) ([]plugins.Result, error) { return nil, hostile })
	check := func(t *testing.T, what, text string) {
		t.Helper()
		if len(text) == 0 || len(text) > 1200 || strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%s: %d bytes: %.100q", what, len(text), text)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		rejects := &recordingSink{refuse: func(event.Event) error { return plugins.Reject(hostile) }}
		down := &recordingSink{refuse: func(event.Event) error { return hostile }}
		pauses := &recordingSink{refuse: func(event.Event) error { return plugins.Pause(hostile) }}
		b := start(t, spec.Settings{Sinks: to(rejects)}, spec.Settings{Sinks: to(&recordingSink{}), Handler: handleEach(ofHandler)},
			spec.Settings{Name: "ends", Sinks: to(&recordingSink{}), Handler: ends},
			spec.Settings{Name: "filters", Sinks: to(&recordingSink{}), Filter: filters.Func(func(context.Context, *event.Delta) (bool, error) { return false, hostile })},
			spec.Settings{Name: "down", Sinks: []spec.NamedSink{{Name: "down", Sink: down}}},
			spec.Settings{Name: "paused", Sinks: []spec.NamedSink{{Name: "pauses", Sink: pauses}}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Minute)
		if len(b.letters.all) != 4 {
			t.Fatalf("%d letters", len(b.letters.all))
		}
		for _, l := range b.letters.all {
			check(t, "letter of "+l.Route, l.Error)
		}
		for _, s := range b.Unavailable() {
			check(t, "sink "+s.Name, s.Reason)
		}
		check(t, "paused", b.statusOf("paused").Paused)
	})
}

// TestSaidIsForLetters: the text of a receiver is in the dead letter, and never in the log.
func TestSaidIsForLetters(t *testing.T) {
	// Guarantee: answers-leak
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &recordingSink{refuse: func(event.Event) error {
				return plugins.Reject(plugins.WithResponse(errors.New("answered 400"), "no field x"))
			}}
			var log bytes.Buffer
			l := &fakeDeadLetters{}
			cfg := pipeline.Config{
				Routes:  []spec.Settings{{Name: "r", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(s)}},
				Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			if kept {
				cfg.DeadLetters = l
			}
			p, err := pipeline.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			b := &harness{Pipeline: p, t: t}
			b.Start(t.Context())
			b.admit(delta(t, event.Added, "a", 0, 1))
			b.drain()
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if kept && (len(l.all) != 1 || l.all[0].Error != "answered 400; the receiver said: no field x") {
				t.Errorf("got %+v", l.all)
			}
			if text := log.String(); !strings.Contains(text, "answered 400") || strings.Contains(text, "field x") {
				t.Errorf("the log has %s", text)
			}
		})
	}
}
