// Package sinktest is a bench for sinks that speak to a broker or a receiver: it opens them, gives
// them events, says what became of each, cuts their connections, vouches for certificates, and puts
// them behind the routes of a pipeline ([Outage]).
//
// The contract that every kind keeps is plugins/plugintest; here is what a test of one kind needs
// to show more than that.
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

// patience is how long a test waits for what must come; none waits so long when all is well.
const patience = 60 * time.Second

// Env returns what the host gives to a sink of that name.
func Env(name string) plugins.SinkEnv {
	return plugins.SinkEnv{Env: plugins.Env{Name: name, Cluster: "test", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}}
}

// Open checks a configuration, opens the sink, and closes it when the test ends. Its name is bus.
func Open(t testing.TB, f plugins.SinkKind, config string) plugins.Sink {
	t.Helper()
	return OpenIn(t, f, config, Env("bus"))
}

// OpenIn is Open with what the host gives.
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

// Events returns n events, each of a pod of its own (prefix-0, prefix-1, …), whose data has about
// size bytes.
func Events(t testing.TB, prefix string, n, size int) []event.Event {
	t.Helper()
	all := make([]event.Event, n)
	for i := range all {
		d := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprintf("%s-%d", prefix, i), i+1, size), Seen: time.Unix(1, 0)}
		all[i] = event.New(d, "r", 0, event.Payload(d))
	}
	return all
}

// Keyed returns n events as [Events] does, whose keys are the letters of keys, in turn.
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

// Verdicts spells what Write said of n events: d delivered, r rejected, u unavailable.
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

// Until waits until done says so, and reports whether it did.
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

// Insist writes events until the sink takes all of them at once, as many times as it needs while it
// finds its way back.
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

// Complains writes events, none of which may be delivered or rejected, until the reason has all
// that want lists; on a slow machine a short timeout may come first. No reason may have the word
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

// File writes a file of a folder of its own, and returns its path.
func File(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Write(t, path, content)
	return path
}

// Write replaces the content of a file at once: who reads finds the old or the new one.
func Write(t testing.TB, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path+".next", []byte(content), 0o600))
	must.Succeed(t, os.Rename(path+".next", path))
}
