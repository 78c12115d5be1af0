package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestWithheldReason: the dead letters of a route that gets Secrets have where the delta failed,
// and the class and the category of the error, and never its text or what the receiver said.
func TestWithheldReason(t *testing.T) {
	// Guarantee: secrets-off-disk
	said := func(err error) error { return plugins.WithResponse(fmt.Errorf("sink: %w", err), "hunter2") }
	for want, err := range map[string]error{
		"the sink rejected it: answered 422 Unprocessable Entity; ": plugins.Reject(said(plugins.Categorize(errors.New("hunter2"), "answered 422 Unprocessable Entity"))),
		"the sink rejected it: no answer in time; ":                 plugins.Reject(said(plugins.Categorize(errors.New("hunter2 "+strings.Repeat("x", 2<<10)), "no answer in time"))),
		"the sink rejected it; ":                                    plugins.Reject(said(errors.New("hunter2"))),
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &recordingSink{refuse: func(event.Event) error { return err }}
				checkWithheld(t, spec.Settings{Sinks: to(s)}, want)
			})
		})
	}
	t.Run("handler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fails := func(context.Context, []*event.Delta) ([]plugins.Result, error) {
				return []plugins.Result{{Verdict: plugins.Fail, Err: errors.New("hunter2")}}, nil
			}
			checkWithheld(t, spec.Settings{Sinks: to(&recordingSink{}), Handler: handlerFunc(fails), HandlerName: "h"},
				"the handler or expression failed until its retries ended; ")
		})
	})
}

func checkWithheld(t *testing.T, r spec.Settings, want string) {
	t.Helper()
	r.Secret = true
	b := open(t, r)
	b.admit(delta(t, event.Added, "a", 0, 1))
	b.Start(t.Context())
	b.drain()
	if len(b.letters.all) != 1 {
		t.Fatalf("%d dead letters", len(b.letters.all))
	}
	if got := b.letters.all[0].Error; !strings.HasPrefix(got, want+"the error is not stored") || strings.Contains(got, "hunter2") {
		t.Errorf("got %q", got)
	}
}
