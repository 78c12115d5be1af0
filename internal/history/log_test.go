package history_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

var (
	pods    = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}
	secrets = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret"}
	usual   = history.Settings{Keep: 24 * time.Hour, MaxSize: 512 << 20, Texts: true}
)

// state returns a state of a pod.
func state(t testing.TB, of *event.Resource, name string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(of, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q,"uid":"u-%s","resourceVersion":"%d"},"spec":%q,"canary":"c%d"}`,
		name, name, version, strings.Repeat("text ", 200), version))
	must.Succeed(t, err)
	return o
}

// router is a running history.
type router struct {
	*history.Log

	t       *testing.T
	dir     string
	metrics *metrics.Metrics
	log     *logged.Buffer
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// start starts a history in a folder.
func start(t *testing.T, dir string, settings history.Settings) *router {
	t.Helper()
	return startWith(t, history.Config{Dir: dir}, settings)
}

// startWith starts a history with the folder and the room of a configuration.
func startWith(t *testing.T, cfg history.Config, settings history.Settings) *router {
	t.Helper()
	r := &router{t: t, dir: cfg.Dir, metrics: metrics.New(), log: &logged.Buffer{}}
	cfg.Clock, cfg.Log, cfg.Metrics = timer.Real(), slog.New(slog.NewTextHandler(r.log, nil)), r.metrics
	r.Log = history.Open(cfg, settings)
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	r.ended.Go(func() { r.Run(ctx) })
	t.Cleanup(r.end)
	return r
}

func (r *router) end() {
	r.stop()
	r.ended.Wait()
}

// update records an update of an object to a version.
func (r *router) update(name string, version int) {
	r.Delta(&event.Delta{Source: "pods", Op: event.Updated, Old: state(r.t, pods, name, version-1), New: state(r.t, pods, name, version), Seen: time.Now()})
}

// of returns a description of the records about an object.
func of(t *testing.T, r *history.Reader, name string) (lines []string) {
	t.Helper()
	r.Damaged = func(path string, err error) { t.Errorf("%s: %v", path, err) }
	records, _, err := r.Object(t.Context(), "pods", event.Key{Namespace: "shop", Name: name}, history.Span{}, 1000)
	must.Succeed(t, err)
	for _, record := range records {
		switch c := record.(type) {
		case *history.Change:
			for _, text := range []string{c.Before, c.After} {
				if text != "" && !strings.Contains(text, strings.Repeat("text ", 200)) {
					t.Errorf("a state is %q", text)
				}
			}
			canary := func(text string) string {
				_, after, _ := strings.Cut(text, `"canary":"`)
				now, _, _ := strings.Cut(after, `"`)
				return now
			}
			lines = append(lines, fmt.Sprintf("%s %s %s→%s", c.Op, c.Version, canary(c.Before), canary(c.After)))
		case *history.Decision:
			lines = append(lines, fmt.Sprintf("%s %s by %s", c.Outcome, c.Version, c.Route))
		}
	}
	return lines
}

func (r *router) reader() *history.Reader {
	reader, err := r.Reader(r.t.Context())
	must.Succeed(r.t, err)
	return reader
}

func folder(t *testing.T, dir string) *history.Reader {
	t.Helper()
	r, err := history.OpenFolder(dir)
	must.Succeed(t, err)
	return r
}

// decide records a decision about an object.
func (r *router) decide(route, name string, version int, outcome history.Outcome) {
	r.Decided(&history.Decision{
		Object: history.Object{Source: "pods", Kind: "Pod", Key: event.Key{Namespace: "shop", Name: name}, UID: "u-" + name},
		Route:  route, Op: event.Updated, Version: fmt.Sprint(version), Outcome: outcome, Seen: time.Now(),
	})
}

// TestObject: the history of an object is the same while the router runs, after its stop, after a
// restart and after a kill.
func TestObject(t *testing.T) {
	// Guarantee: history
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir, usual)
		r.Begin(&history.Begin{Router: "v1", Routes: []history.Route{{Name: "a", Hash: "1"}}})
		r.Delta(&event.Delta{Source: "pods", Op: event.Added, New: state(t, pods, "web", 1), Seen: time.Now()})
		r.update("web", 2)
		r.decide("a", "web", 2, history.Delivered)
		r.update("other", 7)
		want := []string{"added 1 →c1", "updated 2 c1→c2", "delivered 2 by a"}
		check := func(where string, reader *history.Reader) {
			t.Helper()
			if got := of(t, reader, "web"); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", where, got, want)
			}
			if got := of(t, reader, "none"); len(got) > 0 {
				t.Errorf("%s: an unknown object has %q", where, got)
			}
		}
		check("running", r.reader())
		killed := t.TempDir()
		must.Succeed(t, os.CopyFS(killed, os.DirFS(dir)))
		r.end()
		check("stopped", folder(t, dir))
		check("killed", folder(t, killed))

		r = start(t, killed, usual)
		time.Sleep(2 * time.Second) // it makes the index of the former run
		r.update("web", 3)
		r.Delta(&event.Delta{Source: "pods", Op: event.Deleted, Old: state(t, pods, "web", 3), Seen: time.Now()})
		want = append(want, "updated 3 c2→c3", "deleted 3 c3→")
		check("after a kill", r.reader())
		begins, err := r.reader().Begins(t.Context(), history.Span{})
		if err != nil || len(begins) != 1 || begins[0].Routes[0].Name != "a" {
			t.Errorf("begins are %v, %v", begins, err)
		}
		if files, _ := filepath.Glob(filepath.Join(killed, "*.index")); len(files) != 1 {
			t.Errorf("indexes are %q", files)
		}
		if r.log.String() != "" {
			t.Errorf("log: %s", r.log)
		}
	})
}

// TestDecisions returns the last decisions of a route, the newest first.
func TestDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for run := range 3 {
			r := start(t, dir, usual)
			for i := range 10 {
				r.update("web", run*10+i)
				r.decide([]string{"even", "odd"}[i%2], "web", run*10+i, history.Delivered)
				if i == 4 {
					r.decide("even", "web", 1000+run, history.DeadLettered)
				}
				time.Sleep(time.Minute)
			}
			r.end()
		}
		versions := func(in history.Span, limit int, wanted func(*history.Decision) bool) (got []string) {
			all, err := folder(t, dir).Decisions(t.Context(), "even", in, limit, wanted)
			must.Succeed(t, err)
			for _, d := range all {
				got = append(got, d.Version)
			}
			return got
		}
		all := func(*history.Decision) bool { return true }
		if got, want := versions(history.Span{}, 5, all), []string{"28", "26", "1002", "24", "22"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := versions(history.Span{From: time.Now().Add(-16*time.Minute + time.Second)}, 100, all), []string{"28", "26", "1002", "24", "22", "20", "18", "16"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		failed := func(d *history.Decision) bool { return d.Outcome == history.DeadLettered }
		if got, want := versions(history.Span{}, 2, failed), []string{"1002", "1001"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestBounds: of many records, or of large ones, the newest are returned.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir(), usual)
		for version := range 100 {
			r.update("web", version+1)
		}
		records, more, err := r.reader().Object(t.Context(), "pods", event.Key{Namespace: "shop", Name: "web"}, history.Span{}, 7)
		must.Succeed(t, err)
		if len(records) != 7 || !more || records[6].(*history.Change).Version != "100" || records[0].(*history.Change).Version != "94" {
			t.Errorf("%d records, more %t", len(records), more)
		}
		large := func(version int) *event.Object {
			o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"large","uid":"l","resourceVersion":"%d"},"x":%q}`, version, strings.Repeat("x", 3<<20)))
			must.Succeed(t, err)
			return o
		}
		for version := range 20 {
			r.Delta(&event.Delta{Source: "pods", Op: event.Updated, Old: large(version), New: large(version + 1), Seen: time.Now()})
			must.Succeed(t, r.Sync(t.Context()))
		}
		records, more, err = r.reader().Object(t.Context(), "pods", event.Key{Namespace: "shop", Name: "large"}, history.Span{}, 1000)
		must.Succeed(t, err)
		if len(records) != 10 || !more || records[9].(*history.Change).Version != "20" {
			t.Errorf("%d large records, more %t", len(records), more)
		}
	})
}

// TestSecrets: the content of a Secret is in no file, and neither are states if the settings say
// so.
func TestSecrets(t *testing.T) {
	// Guarantee: history-secrets
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		settings := usual
		settings.Sources = map[string]history.SourceSettings{"identities": {}, "none": {None: true}}
		r := start(t, dir, settings)
		for _, d := range []*event.Delta{
			{Source: "secrets", Op: event.Updated, Old: state(t, secrets, "a", 1), New: state(t, secrets, "a", 2)},
			{Source: "identities", Op: event.Updated, Old: state(t, pods, "b", 1), New: state(t, pods, "b", 2)},
			{Source: "none", Op: event.Updated, Old: state(t, pods, "c", 1), New: state(t, pods, "c", 2)},
			{Source: "pods", Op: event.Added, Initial: true, New: state(t, pods, "d", 2)},
		} {
			r.Delta(d)
		}
		var got []string
		must.Succeed(t, r.reader().Records(t.Context(), history.Span{}, func(record any) error {
			c := record.(*history.Change)
			got = append(got, fmt.Sprintf("%s %s %s texts %t", c.Source, c.Key, c.Version, c.Texts))
			if c.Before != "" || c.After != "" {
				t.Errorf("%s has states", c.Source)
			}
			return nil
		}))
		if want := []string{"secrets shop/a 2 texts false", "identities shop/b 2 texts false", "pods shop/d 2 texts false"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestOrder reads all records in the order of time, also if sources are kept for different times
// and so are in different segments, and ends at the first error.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := usual
		settings.Sources = map[string]history.SourceSettings{"events": {Keep: 6 * time.Hour, Texts: true}}
		r := start(t, t.TempDir(), settings)
		for i := range 50 {
			r.update("web", i)
			time.Sleep(time.Minute)
			r.Delta(&event.Delta{Source: "events", Op: event.Updated, Old: state(t, pods, "web", i), New: state(t, pods, "web", i+1), Seen: time.Now()})
			time.Sleep(time.Minute)
		}
		reader := r.reader()
		r.update("web", 99) // later than the reader
		must.Succeed(t, r.Sync(t.Context()))
		n, last := 0, time.Time{}
		must.Succeed(t, reader.Records(t.Context(), history.Span{}, func(record any) error {
			if c, ok := record.(*history.Change); ok {
				if n++; !c.At.After(last) || c.Version == "99" {
					t.Errorf("version %s of %s, at %v, is behind a change at %v", c.Version, c.Source, c.At, last)
				}
				last = c.At
			}
			return nil
		}))
		if n != 100 {
			t.Errorf("got %d changes, want 100", n)
		}
		if err := reader.Records(t.Context(), history.Span{}, func(any) error { return io.EOF }); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the error of the caller", err)
		}
	})
}

// TestClosedFolder: while the folder cannot be opened, records are lost and counted, and the log
// has the reason; afterwards the history begins, with the number of the lost ones.
func TestClosedFolder(t *testing.T) {
	// Guarantee: history
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "history")
		must.Succeed(t, os.WriteFile(dir, nil, 0o600))
		r := start(t, dir, usual)
		r.update("web", 1)
		must.Succeed(t, r.Sync(t.Context()))
		if err := r.Trouble(); err == nil || !strings.Contains(r.log.String(), "records of the history cannot be written and are lost") {
			t.Errorf("the trouble is %v, the log %q", err, r.log)
		}
		if _, err := r.Reader(t.Context()); err == nil {
			t.Error("a reader of nothing")
		}
		must.Succeed(t, os.Remove(dir))
		r.update("web", 2)
		reader := r.reader()
		losses, err := reader.Losses(t.Context(), history.Span{})
		must.Succeed(t, err)
		if got := of(t, reader, "web"); len(got) != 1 || len(losses) != 1 || losses[0].Number != 1 {
			t.Errorf("got %q, lost %+v", got, losses)
		}
		if n := testutil.ToFloat64(r.metrics.HistoryLost.WithLabelValues("refused")); n != 1 {
			t.Errorf("%v records are counted as lost", n)
		}
		time.Sleep(3 * time.Minute)
		if err := r.Trouble(); err != nil {
			t.Errorf("the trouble lasts: %v", err)
		}
	})
}

// TestRetention removes segments that are too old, each after the time of its source, and the
// oldest ones while all together are too large.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		settings := history.Settings{Keep: 4 * time.Hour, MaxSize: 1 << 20, Texts: true, Sources: map[string]history.SourceSettings{"events": {Keep: time.Hour, Texts: true}}}
		r := start(t, dir, settings)
		oldest := func(source string) (age time.Duration) {
			first := time.Now()
			must.Succeed(t, r.reader().Records(t.Context(), history.Span{}, func(record any) error {
				if c, ok := record.(*history.Change); ok && c.Source == source && c.At.Before(first) {
					first = c.At
				}
				return nil
			}))
			return time.Since(first)
		}
		for i := range 100 {
			r.update("web", i)
			r.Delta(&event.Delta{Source: "events", Op: event.Updated, Old: state(t, pods, "web", i-1), New: state(t, pods, "web", i), Seen: time.Now()})
			time.Sleep(6 * time.Minute)
		}
		if age := oldest("pods"); age < 4*time.Hour || age > 5*time.Hour {
			t.Errorf("the oldest record of pods is %v old", age)
		}
		if age := oldest("events"); age < time.Hour || age > 75*time.Minute {
			t.Errorf("the oldest record of events is %v old", age)
		}
		// random texts, which cannot be compressed
		for i := range 3000 {
			o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":"n%d","resourceVersion":"1"},"x":%q}`, i, noise(2000)))
			must.Succeed(t, err)
			r.Delta(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()})
			if i%100 == 0 {
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(2 * time.Minute)
		if size := r.Bytes(); size > 3<<20 { // the newest segment may be full
			t.Errorf("%d bytes", size)
		}
		if r.log.String() != "" {
			t.Errorf("log: %s", r.log)
		}
	})
}

var noiseState = uint64(1)

// noise returns text that cannot be compressed.
func noise(n int) string {
	const digits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	b := make([]byte, n)
	for i := range b {
		noiseState = noiseState*6364136223846793005 + 1442695040888963407
		b[i] = digits[noiseState>>58]
	}
	return string(b)
}

// TestLost: what the writer cannot keep up with, or cannot write, is missing, counted, and reported
// in the history itself; later records are there.
func TestLost(t *testing.T) {
	// Guarantee: history
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "history")
		r := start(t, dir, usual)
		losses := func() (all []string) {
			lost, err := r.reader().Losses(t.Context(), history.Span{})
			must.Succeed(t, err)
			for _, l := range lost {
				all = append(all, fmt.Sprintf("%d %s", l.Number, l.Reason))
			}
			return all
		}
		large, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":"large"},"x":%q}`, strings.Repeat("x", 17<<20)))
		must.Succeed(t, err)
		r.Delta(&event.Delta{Source: "pods", Op: event.Added, New: large, Seen: time.Now()})
		r.update("web", 2)
		if got := losses(); !slices.Equal(got, []string{"1 slow"}) {
			t.Errorf("losses: %q", got)
		}
		if !strings.Contains(r.log.String(), "more records wait for the disk") {
			t.Errorf("log: %s", r.log)
		}
		// the folder is gone, and comes back
		r.end()
		r = start(t, dir, usual)
		must.Succeed(t, os.Rename(dir, dir+".away"))
		r.update("web", 3)
		r.update("web", 4)
		must.Succeed(t, r.Sync(t.Context()))
		must.Succeed(t, os.Rename(dir+".away", dir))
		r.update("web", 5)
		if got, want := of(t, r.reader(), "web"), []string{"updated 2 c1→c2", "updated 5 c4→c5"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := losses(); !slices.Equal(got, []string{"1 slow", "2 refused"}) {
			t.Errorf("losses: %q", got)
		}
		if missing := testutil.ToFloat64(r.metrics.HistoryLost.WithLabelValues("refused")); missing != 2 {
			t.Errorf("%v records are counted", missing)
		}
		if n := strings.Count(r.log.String(), "cannot be written"); n != 1 {
			t.Errorf("%d warnings: %s", n, r.log)
		}
	})
}

// TestDamagedSegment: a damaged segment costs its records from there on, and a warning.
func TestDamagedSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for version := range 3 {
			r := start(t, dir, usual)
			r.update("web", version+1)
			r.end()
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.history"))
		must.Succeed(t, err)
		content, err := os.ReadFile(files[1])
		must.Succeed(t, err)
		content[len(content)-5] ^= 1
		must.Succeed(t, os.WriteFile(files[1], content, 0o600))
		reader := folder(t, dir)
		var damaged []string
		reader.Damaged = func(path string, _ error) { damaged = append(damaged, path) }
		records, _, err := reader.Object(t.Context(), "pods", event.Key{Namespace: "shop", Name: "web"}, history.Span{}, 1000)
		if err != nil || len(records) != 2 || !slices.Equal(damaged, files[1:2]) {
			t.Errorf("%d records, damaged %q, %v", len(records), damaged, err)
		}
		must.Succeed(t, os.Remove(files[1]+".index"))
		r := start(t, dir, usual)
		must.Succeed(t, r.Sync(t.Context()))
		if !strings.Contains(r.log.String(), "a segment of the history is damaged") {
			t.Errorf("log: %s", r.log)
		}
	})
}

// TestNoRoom: the history gives up its oldest records where the state may need the disk, records
// nothing if that is not enough, says so, and goes on with the configuration that holds then.
func TestNoRoom(t *testing.T) {
	// Guarantee: history-room
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var others atomic.Int64 // bytes of others on a disk of 8 MiB, of which the state may need 2
		const disk, needed = 8 << 20, 2 << 20
		used := func() (n int64) {
			entries, err := os.ReadDir(dir)
			must.Succeed(t, err)
			for _, e := range entries {
				info, err := e.Info()
				must.Succeed(t, err)
				n += info.Size()
			}
			return n
		}
		r := startWith(t, history.Config{Dir: dir, Room: func() (free, need int64, known bool) { return disk - others.Load() - used(), needed, true }}, usual)
		fill := func(n int) {
			t.Helper()
			for i := range n {
				o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":"n%d","resourceVersion":"1"},"x":%q}`, i, noise(20_000)))
				must.Succeed(t, err)
				r.Delta(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()})
				if i%20 == 0 {
					time.Sleep(2 * time.Second)
				}
				if i%50 == 0 {
					time.Sleep(3 * time.Hour) // the next segment
				}
			}
			must.Succeed(t, r.Sync(t.Context()))
		}
		fill(1000)
		if got := used(); got > disk-needed+1<<20 || got < 2<<20 {
			t.Errorf("the history has %d bytes", got)
		}
		if err := r.Trouble(); err != nil || r.log.String() != "" {
			t.Errorf("the trouble is %v, the log %q", err, r.log)
		}
		others.Store(disk)
		r.Begin(&history.Begin{Config: "first", Reload: true})
		r.Begin(&history.Begin{Config: "second", Reload: true})
		r.update("web", 2)
		must.Succeed(t, r.Sync(t.Context()))
		if err := r.Trouble(); err == nil || !strings.Contains(err.Error(), "the state may need 2 MiB") || strings.Count(r.log.String(), "are lost") != 1 {
			t.Errorf("the trouble is %v, the log %q", err, r.log)
		}
		time.Sleep(time.Hour)
		if r.Trouble() == nil {
			t.Error("the trouble has ended")
		}
		others.Store(0)
		r.update("web", 3)
		if got, want := of(t, r.reader(), "web"), []string{"updated 3 c2→c3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		begins, err := r.reader().Begins(t.Context(), history.Span{})
		if err != nil || len(begins) == 0 || begins[len(begins)-1].Config != "second" {
			t.Errorf("begins are %v, %v", begins, err)
		}
		if n := testutil.ToFloat64(r.metrics.HistoryLost.WithLabelValues("refused")); n != 1 {
			t.Errorf("%v records are counted as lost", n)
		}
	})
}

// TestHangingDisk: neither a delta nor a metric waits for a disk that does not answer, and the loss
// is seen.
func TestHangingDisk(t *testing.T) {
	// Guarantee: history
	answer, asked := make(chan struct{}), make(chan struct{})
	var ask sync.Once
	r := startWith(t, history.Config{Dir: t.TempDir(), Room: func() (free, needed int64, known bool) {
		ask.Do(func() { close(asked) })
		<-answer
		return 0, 0, false
	}}, usual)
	t.Cleanup(func() { close(answer) }) // before the end of the history
	<-asked
	o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":"large"},"x":%q}`, strings.Repeat("x", 9<<20)))
	must.Succeed(t, err)
	for range 2 {
		r.Delta(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()})
	}
	if err := r.Trouble(); err == nil || !strings.Contains(r.log.String(), "more records wait for the disk") {
		t.Errorf("the trouble is %v, the log %q", err, r.log)
	}
	r.Bytes()
}
