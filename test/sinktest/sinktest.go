// Package sinktest helps to test sinks that use a broker or a receiver: it opens them, writes
// events, checks the results, cuts their connections, issues certificates, and uses them in the
// routes of a pipeline ([Outage]).
//
// plugins/plugintest tests the common contract of all kinds; this package is for the further tests
// of one kind.
package sinktest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// patience bounds the waits of a test.
const patience = 60 * time.Second

// Env returns the host's environment of a sink with that name.
func Env(name string) plugins.SinkEnv {
	return plugins.SinkEnv{Env: plugins.Env{Name: name, Cluster: "test", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}}
}

// Open checks a configuration, opens the sink under the name bus, and closes it when the test ends.
func Open(t testing.TB, f plugins.SinkKind, config string) plugins.Sink {
	t.Helper()
	return OpenIn(t, f, config, Env("bus"))
}

// OpenIn is Open with an environment.
func OpenIn(t testing.TB, f plugins.SinkKind, config string, env plugins.SinkEnv) plugins.Sink {
	t.Helper()
	if problems := f.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	sink, err := f.Open(t.Context(), plugintest.Node(t, config), env)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink
}

// Events returns n events, each of a different pod (prefix-0, prefix-1, …), with data of about size
// bytes.
func Events(t testing.TB, prefix string, n, size int) []event.Event {
	t.Helper()
	all := make([]event.Event, n)
	for i := range all {
		d := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprintf("%s-%d", prefix, i), i+1, size), Seen: time.Unix(1, 0)}
		all[i] = event.New(d, "r", 0, event.Payload(d))
	}
	return all
}

// Keyed returns n events like [Events]. Their keys are the letters of keys, in turn.
func Keyed(t testing.TB, n int, keys string) []event.Event {
	t.Helper()
	all := Events(t, "web", n, 20)
	for i := range all {
		all[i].Key = string(keys[i%len(keys)])
	}
	return all
}

// IDs returns the ids of events.
func IDs(events []event.Event) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

// Verdicts spells the results of Write for n events: d delivered, r rejected, u unavailable.
func Verdicts(n int, errs []error) string {
	if errs == nil {
		return strings.Repeat("d", n)
	}
	var s strings.Builder
	for _, err := range errs {
		switch {
		case err == nil:
			s.WriteByte('d')
		case plugins.ClassOf(err) == plugins.Rejected:
			s.WriteByte('r')
		default:
			s.WriteByte('u')
		}
	}
	return s.String()
}

// Until waits until done returns true, and reports whether it did.
func Until(t testing.TB, what string, done func() bool) bool {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("%s does not happen", what)
			return false
		}
	}
	return true
}

// Insist writes events until the sink accepts all of them at once, as often as needed while it
// reconnects.
func Insist(t testing.TB, s plugins.Sink, events []event.Event) {
	t.Helper()
	var errs []error
	Until(t, "the delivery of all events", func() bool {
		errs = s.Write(t.Context(), events)
		return errs == nil
	})
	if errs != nil {
		t.Fatalf("%s: %v", Verdicts(len(events), errs), errs)
	}
}

// Complains writes events, none of which may be delivered or rejected, until the reason contains
// all of want; on a slow machine a short timeout may come first. No reason may contain the word
// s3cret.
func Complains(t testing.TB, s plugins.Sink, events []event.Event, want ...string) {
	t.Helper()
	said := ""
	if !Until(t, fmt.Sprintf("an error with %q", want), func() bool {
		errs := s.Write(t.Context(), events)
		if v := Verdicts(len(events), errs); strings.Trim(v, "u") != "" || strings.Contains(errs[0].Error(), "s3cret") {
			t.Fatalf("got %s: %v", v, errs)
		}
		said = errs[0].Error()
		return !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(said, part) })
	}) {
		t.Logf("the last error was: %s", said)
	}
}

// File writes a file in a new folder, and returns its path.
func File(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Write(t, path, content)
	return path
}

// Write replaces the content of a file atomically.
func Write(t testing.TB, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path+".next", []byte(content), 0o600))
	must.Succeed(t, os.Rename(path+".next", path))
}
