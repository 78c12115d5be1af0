package engine

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/statecmd"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write the goldens of testdata, and the state folder of a new format")

// formatTime is the time at which the state folders of testdata were written.
var formatTime = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// formatSecret is in objects of the state folders, but must not be in their files.
const formatSecret = "canary-in-the-coal-mine"

// formatRun is a router of the state folder in dir, without its watches.
type formatRun struct {
	*State

	clock *timer.Fake
	out   *subjects
}

// formatRoutes are the routes of the state folders: one for each kind of state that a route has.
func formatRoutes(out plugins.Sink) []spec.Settings {
	edges := []event.Op{event.Entered, event.Left}
	bad := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
		return strings.HasPrefix(d.Key().Name, "bad"), nil
	})
	all := func(context.Context, *event.Delta) (string, error) { return "all", nil }
	resource := func(string) *event.Resource { return nil }
	route := func(r spec.Settings) spec.Settings {
		r.ID, r.Sources, r.Sinks = r.Name, []string{"things"}, []spec.NamedSink{{Name: "out", Sink: out}}
		r.When.Resource = resource
		return r
	}
	return []spec.Settings{
		route(spec.Settings{Name: "plain", Ops: event.Ops()}),
		route(spec.Settings{Name: "limited", Ops: event.Ops(), Limit: spec.Limit{Key: all, Every: time.Hour}}),
		route(spec.Settings{Name: "entered", Ops: edges, When: spec.When{Filter: bad, Version: "1", Every: time.Hour, Resource: resource}}),
		route(spec.Settings{Name: "waiting", Ops: edges, When: spec.When{Filter: bad, Version: "1", For: time.Hour, Resource: resource}}),
		route(spec.Settings{Name: "held", Ops: []event.Op{event.Deleted}, Hold: time.Hour}),
	}
}

// openFormat opens a state folder and restores its routes, some minutes after it was written.
func openFormat(t *testing.T, dir string) *formatRun {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := OpenState(config.State{Dir: dir}, nil, Shipping{}, log)
	must.Succeed(t, err)
	must.Succeed(t, s.OpenLetters(checkpoint.LettersConfig{}))
	r := &formatRun{State: s, clock: timer.NewFake(formatTime), out: &subjects{}}
	NewMemories(s, r.clock)
	s.Resolve(func(string) *event.Resource { return nil })
	s.factory = informer.New(informer.Config{Log: log})
	s.pipeline, err = pipeline.New(pipeline.Config{Store: s, Clock: r.clock, DeadLetters: s.Letters, Routes: formatRoutes(r.out)})
	must.Succeed(t, err)
	for _, route := range formatRoutes(r.out) {
		must.Succeed(t, s.restoreRoute(&config.Route{ID: route.ID, Name: route.Name, Queue: config.Queue{Memory: 100}}))
	}
	return r
}

func (r *formatRun) admit(t *testing.T, op event.Op, name, version string) {
	t.Helper()
	d := &event.Delta{Source: "things", Op: op, New: thing(t, "things", name, "uid-"+name, version), Seen: r.clock.Now()}
	if op == event.Deleted {
		d.Old, d.New = d.New, nil
	}
	commit, err := r.pipeline.Admit(t.Context(), d)
	must.Succeed(t, err)
	commit.Commit()
}

func (r *formatRun) close(t *testing.T) {
	t.Helper()
	must.Succeed(t, r.pipeline.Close(t.Context()))
	must.Succeed(t, r.Close(t.Context()))
}

// writeFormat makes the state folder of the present format. Its pipeline delivers nothing.
func writeFormat(t *testing.T, dir string) {
	t.Helper()
	r := openFormat(t, dir)
	r.admit(t, event.Added, "good", "1")
	r.admit(t, event.Added, "bad-1", "2")
	r.admit(t, event.Added, "bad-2", "3")
	r.admit(t, event.Deleted, "good", "4")
	kv, err := r.memories.Open("counter")
	must.Succeed(t, err)
	must.Succeed(t, kv.Commit([]plugins.KVWrite{
		{Key: "seen", Value: []byte("3")}, {Key: "raw", Value: []byte{0xff, 0}, Expires: formatTime.Add(time.Hour)},
	}, 1<<20))
	cut := r.Collect(func() {})
	cut.Cluster = "cluster-1"
	things := checkpoint.WatchCut{ID: "things", Cluster: "cluster-1", Applied: "4"}
	for i, name := range []string{"bad-1", "bad-2"} {
		things.Put = append(things.Put, thing(t, "things", name, "uid-"+name, fmt.Sprint(i+2)))
	}
	secret, err := event.ParseObject(thing(t, "secrets", "s", "u", "1").Resource(), fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s","uid":"uid-s","resourceVersion":"9"},"data":{"k":%q}}`, formatSecret))
	must.Succeed(t, err)
	secrets := checkpoint.WatchCut{ID: "secrets", Cluster: "cluster-2", Applied: "9", Relisting: true, Put: []*event.Object{secret}}
	cut.Watches = append(cut.Watches, things, secrets)
	about := &event.Delta{Source: "secrets", Op: event.Updated, Old: secret, New: secret, Seen: formatTime, Event: &event.Event{ID: "e", Data: []byte(`"` + formatSecret + `"`)}}
	addRoute(&cut, checkpoint.RouteCut{
		Name: "plain", Put: []checkpoint.Pending{{ID: 1000, Delta: about, Closed: []string{"other"}, Attempts: 2, Unlimited: true}},
		Rules: []checkpoint.RuleRecord{
			{Kind: checkpoint.KindChange, Key: []byte{0, 0, 0, 0, 0, 0, 0, 7}, Value: checkpoint.EncodeDelta(about)},
			{Kind: checkpoint.KindDue, Key: []byte("ns\x00bad-1\x00uid-bad-1"), Value: []byte{}},
		},
	})
	addRoute(&cut, checkpoint.RouteCut{Name: "stopped", Rules: []checkpoint.RuleRecord{{Kind: checkpoint.KindPause, Value: []byte("maxDeletes")}}})
	must.Succeed(t, r.db.Write(cut))
	must.Succeed(t, r.db.WriteIntents(map[string][]*event.Object{"things": {thing(t, "things", "new", "uid-new", "5")}, "secrets": {secret}}))
	must.Succeed(t, r.Letters.Add(t.Context(), []checkpoint.Letter{
		{Time: formatTime, Route: "plain", Sink: "out", Error: "HTTP 400", Attempts: 3, Delta: &event.Delta{Source: "things", Op: event.Added, New: thing(t, "things", "dead", "uid-dead", "1"), Seen: formatTime}},
		{Time: formatTime, Route: "former", Unseen: true, Delta: about},
	}))
	r.close(t)
}

// TestFormats opens the state folder of each format since 6, compares its whole content with a
// golden, and continues its work. -update writes the goldens, and the folder of the present format
// if there is none: a folder never changes afterwards, because users have such files.
func TestFormats(t *testing.T) {
	// Guarantee: upgrade
	present := fmt.Sprintf("testdata/format%d", checkpoint.Format)
	if _, err := os.Stat(present); *update && errors.Is(err, fs.ErrNotExist) {
		must.Succeed(t, os.Mkdir(present, 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(present, hashKeyFile), bytes.Repeat([]byte("k"), hashKeySize), 0o600))
		writeFormat(t, present)
		must.Succeed(t, os.Remove(filepath.Join(present, StateFile+".lock")))
		must.Succeed(t, os.Remove(filepath.Join(present, StateFile+".journal"))) // no other format reads it
	}
	folders, err := filepath.Glob("testdata/format*")
	if err != nil || !slices.Contains(folders, present) {
		t.Fatalf("there are %q, %v: a new format needs its folder: go test ./internal/engine -run TestFormats -update", folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, os.CopyFS(dir, os.DirFS(folder)))
			must.Succeed(t, os.Chmod(dir, 0o700))
			before, err := os.ReadFile(filepath.Join(dir, StateFile))
			if err != nil || bytes.Contains(before, []byte(formatSecret)) {
				t.Errorf("the data of a Secret is in the file, %v", err)
			}
			openFormat(t, dir).close(t) // converts an older format
			var got bytes.Buffer
			exported(t, filepath.Join(dir, StateFile), &got)
			if strings.Contains(got.String(), formatSecret) {
				t.Error("the data of a Secret is in the export")
			}
			golden(t, filepath.Join(folder, "export.ndjson"), got.Bytes())
			golden(t, filepath.Join(folder, "continued.txt"), continued(t, dir))
		})
	}
}

func exported(t *testing.T, path string, to *bytes.Buffer) {
	t.Helper()
	db, err := checkpoint.OpenReadOnly(path)
	must.Succeed(t, err)
	must.Succeed(t, statecmd.Export(db, path, to))
	must.Succeed(t, db.Close())
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\ngot\n%swant\n%s", err, got, want)
	}
}

// continued describes how a router continues the work of a state folder.
func continued(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	r := openFormat(t, dir)
	r.clock.Advance(formatTime.Add(10 * time.Minute))
	for _, route := range []string{"entered", "waiting", "held"} {
		page, _, _ := r.pipeline.Active(route, pipeline.Holding{}, 100)
		for _, h := range page {
			fmt.Fprintf(&b, "%s: %s %s since %s due %s\n", route, h.Key, h.State, h.Since.UTC().Format(time.TimeOnly), h.Due.UTC().Format(time.TimeOnly))
		}
	}
	r.admit(t, event.Added, "suppressed", "10") // by the limit; plain gets it
	r.admit(t, event.Added, "good", "11")       // ends the held delete
	kv, err := r.memories.Open("counter")
	must.Succeed(t, err)
	seen, ok := kv.Get("seen")
	fmt.Fprintf(&b, "counter: seen %s %v\n", seen, ok)
	must.Succeed(t, r.db.Write(r.Collect(func() {})))
	r.Done(nil)
	r.pipeline.Start(t.Context())
	must.Succeed(t, r.pipeline.WaitDelivered(t.Context()))
	r.close(t)
	slices.Sort(r.out.list) // the routes are independent
	fmt.Fprintf(&b, "delivered: %s\n", strings.Join(r.out.list, " "))
	return b.Bytes()
}
