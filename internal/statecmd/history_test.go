package statecmd_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/history/segment"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

const canary = "canary-in-the-coal-mine"

// recorded runs a history in the history folder of a state folder until do returns, and then one
// second more.
func recorded(t *testing.T, dir string, do func(l *history.Log)) {
	t.Helper()
	l := history.Open(
		history.Config{Dir: filepath.Join(dir, history.Folder), Clock: timer.Real(), Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()},
		history.Settings{Keep: 24 * time.Hour, MaxSize: 512 << 20, Texts: true},
	)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	do(l)
	time.Sleep(time.Second)
	stop()
	running.Wait()
}

// object returns a state of an object.
func object(t *testing.T, kind, name string, version int) *event.Object {
	t.Helper()
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "others"}, Kind: kind}
	o, err := event.ParseObject(r, fmt.Sprintf(
		`{"apiVersion":"v1","kind":%q,"metadata":{"namespace":"shop","name":%q,"uid":"u","resourceVersion":"%d"},"data":{"k":%q}}`, kind, name, version, canary))
	must.Succeed(t, err)
	return o
}

// record records two updates of an object, with a minute between them, and decisions about them.
func record(t *testing.T, l *history.Log, kind, name string) {
	t.Helper()
	for version := 2; version <= 3; version++ {
		before, after := object(t, kind, name, version-1), object(t, kind, name, version)
		d := &event.Delta{Source: "ours", Op: event.Updated, Old: before, New: after, Seen: time.Now()}
		l.Delta(d)
		decision := &history.Decision{Object: history.ObjectOf(d), Route: "r", Op: event.Updated, Version: after.ResourceVersion(), Outcome: history.Delivered, Seen: d.Seen, Events: 1}
		if version == 3 {
			decision.Outcome, decision.Reason = history.Dropped, "the handler failed"
			decision.Steps = []history.Step{{Kind: history.Handle, Name: "h", At: d.Seen, Took: time.Millisecond, Size: 1, Err: "it failed"}}
		}
		l.Decided(decision)
		time.Sleep(time.Minute)
	}
}

// withHistory returns a state folder with a history of two segments, of which a record is lost.
func withHistory(t *testing.T) (dir string) {
	t.Helper()
	dir = stateOf(t)
	begin := &history.Begin{Router: "v1", Cluster: "test", Config: "aa", Routes: []history.Route{{Name: "r", From: []string{"ours"}, Hash: "1"}}}
	folder := filepath.Join(dir, history.Folder)
	must.Succeed(t, os.WriteFile(folder, nil, 0o600)) // a file in its place: the first record is lost
	recorded(t, dir, func(l *history.Log) {
		l.Decided(&history.Decision{Route: "r", Outcome: history.Delivered, Seen: time.Now()})
		must.Succeed(t, l.Sync(t.Context()))
		must.Succeed(t, os.Remove(folder))
		l.Begin(begin)
		record(t, l, "Other", "web")
	})
	recorded(t, dir, func(l *history.Log) {
		l.Begin(begin) // a restart: nothing is new
		record(t, l, "Secret", "token")
		second := *begin
		second.Config, second.Reload = "bb", true
		l.Begin(&second)
	})
	return dir
}

var sizes = regexp.MustCompile(`(size +|"bytes": )[0-9]+( bytes, 2|,\n    "from")`)

// TestInspectHistory counts the records of a history.
func TestInspectHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := withHistory(t)
		for _, c := range []struct {
			golden string
			args   []string
		}{
			{"history.txt", []string{dir}},
			{"history.json", []string{"-o", "json", dir}},
		} {
			code, out, errs := run(t.Context(), append([]string{"inspect"}, c.args...)...)
			if code != cli.CodeOK || errs != "" {
				t.Errorf("%q: exit code %d, %s", c.args, code, errs)
			}
			begin := map[bool]string{true: "\nhistory", false: `  "history"`}[c.golden == "history.txt"]
			_, out, _ = strings.Cut(out, begin)
			golden(t, c.golden, sizes.ReplaceAllString(strings.ReplaceAll(out, dir, "DIR"), "${1}SIZE${2}"))
		}
	})
}

// TestExportHistory: each record is a line, in the order of time. The states are there only if they
// are asked for, and those of Secrets never.
func TestExportHistory(t *testing.T) {
	// Guarantee: history-secrets
	synctest.Test(t, func(t *testing.T) {
		dir := withHistory(t)
		code, out, errs := run(t.Context(), "export", "-history", dir)
		if code != cli.CodeOK || errs != "" || strings.Contains(out, canary) {
			t.Errorf("exit code %d, %s", code, errs)
		}
		golden(t, "history.ndjson", out)
		code, out, errs = run(t.Context(), "export", "-history", "-states", dir)
		if code != cli.CodeOK || errs != "" || strings.Count(out, canary) != 4 || strings.Count(out, `"before":{"apiVersion":"v1","kind":"Secret","metadata":{`) != 2 {
			t.Errorf("exit code %d, %s%s", code, errs, out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "Secret") && strings.Contains(line, canary) {
				t.Errorf("got %s", line)
			}
		}
	})
}

// lastSegment returns the path of the last segment in a state folder.
func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	r, err := history.OpenFolder(filepath.Join(dir, history.Folder))
	must.Succeed(t, err)
	all := r.Segments()
	return all[len(all)-1][0]
}

// TestDamagedHistory: the records before the damage are there, and the commands say that more were.
func TestDamagedHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := withHistory(t)
		path := lastSegment(t, dir)
		must.Succeed(t, os.WriteFile(path, []byte("no segment"), 0o600))
		code, out, errs := run(t.Context(), "inspect", dir)
		name := filepath.Base(path)
		if code != cli.CodeOK || errs != "" || !strings.Contains(out, "2 changes, 2 decisions, 1 configuration\n") ||
			!regexp.MustCompile(`(?m)^damage +`+name+`: the segment is damaged`).MatchString(out) {
			t.Errorf("inspect: exit code %d, %s%s", code, errs, out)
		}
		code, out, errs = run(t.Context(), "export", "-history", dir)
		if code != cli.CodeOK || !strings.HasPrefix(errs, path+": the segment is damaged") || !strings.HasSuffix(out, `{"damaged":1,"type":"end"}`+"\n") {
			t.Errorf("export: exit code %d, %s%s", code, errs, out)
		}
	})
}

// namesOf returns the names and versions in the history of a reader.
func namesOf(t *testing.T, r *history.Reader) (all []string) {
	t.Helper()
	r.Damaged = func(path string, err error) { t.Errorf("%s: %v", path, err) }
	must.Succeed(t, r.Records(t.Context(), history.Span{}, func(record any) error {
		if c, ok := record.(*history.Change); ok {
			all = append(all, c.Key.Name+" "+c.Version)
		}
		return nil
	}))
	return all
}

// TestBackupOfHistory: a state folder with copies of the state and the history is one with which a
// router goes on, and the history has both what was before and what comes.
func TestBackupOfHistory(t *testing.T) {
	// Guarantee: backup
	synctest.Test(t, func(t *testing.T) {
		dir, to := withHistory(t), t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "hash.key"), nil, 0o600))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, history.Folder, "notes.txt"), nil, 0o600)) // no segment
		file, folder := filepath.Join(to, "state.db"), filepath.Join(to, history.Folder)
		code, out, errs := run(t.Context(), "backup", "-history", folder, dir, file)
		want := regexp.MustCompile(`^Wrote .*state.db: .*\nWrote ` + folder + `: 2 segments, [0-9]+ bytes.\nNot in the backup: hash.key \(copy it once: it does not change\).\n$`)
		if code != cli.CodeOK || out != "" || !want.MatchString(errs) {
			t.Fatalf("exit code %d, %s%s", code, out, errs)
		}
		if names := namesIn(t, to); !slices.Equal(names, []string{history.Folder, "state.db"}) {
			t.Errorf("there is %q", names)
		}
		if names := namesIn(t, folder); len(names) != 4 { // segments and their indexes
			t.Errorf("the copy has %q", names)
		}
		for _, name := range namesIn(t, folder) {
			if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		before := []string{"web 2", "web 3", "token 2", "token 3"}
		_, want1, _ := run(t.Context(), "export", "-history", "-states", dir)
		if code, got, errs := run(t.Context(), "export", "-history", "-states", to); code != cli.CodeOK || got != want1 {
			t.Errorf("the copy has %s%s", got, errs)
		}
		recorded(t, to, func(l *history.Log) {
			record(t, l, "Other", "new")
			r, err := l.Reader(t.Context())
			must.Succeed(t, err)
			if got, want := namesOf(t, r), append(slices.Clone(before), "new 2", "new 3"); !slices.Equal(got, want) {
				t.Errorf("with a restored history there is %q, want %q", got, want)
			}
		})
		if code, _, errs := run(t.Context(), "inspect", to); code != cli.CodeOK || errs != "" {
			t.Errorf("exit code %d, %s", code, errs)
		}
	})
}

// TestBackupSaysWhatIsMissing: a backup without the history says so, and -history never overwrites.
func TestBackupSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, to := withHistory(t), t.TempDir()
		code, _, errs := run(t.Context(), "backup", dir, filepath.Join(to, "a.db"))
		if code != cli.CodeOK || !strings.HasSuffix(errs, "\nNot in the backup: the history (add -history FOLDER).\n") {
			t.Errorf("exit code %d, %s", code, errs)
		}
		must.Succeed(t, os.Mkdir(filepath.Join(to, "rest.new"), 0o700))
		for name, c := range map[string]struct {
			args []string
			code int
			want string
		}{
			"a folder that exists":   {[]string{"-history", to, dir, filepath.Join(to, "x")}, 1, to + " exists already"},
			"no history":             {[]string{"-history", filepath.Join(to, "h"), stateOf(t), filepath.Join(to, "x")}, 2, "there is no history beside"},
			"a running router":       {[]string{"-history", filepath.Join(to, "h"), "-api", "127.0.0.1:1", filepath.Join(to, "x")}, 1, "the history of a running router is not read while it is written: stop the router"},
			"a folder in use":        {[]string{"-history", filepath.Join(to, "h"), inUse(t, withHistory(t)), filepath.Join(to, "x")}, 1, "is used by process"},
			"no such folder":         {[]string{"-history", filepath.Join(to, "no", "h"), dir, filepath.Join(to, "b.db")}, 1, "b.db is complete, but not the history: "},
			"the rest of a backup":   {[]string{"-history", filepath.Join(to, "rest"), dir, filepath.Join(to, "c.db")}, 1, "rest.new is the rest of an interrupted backup: delete it"},
			"the states of no lines": {nil, 2, "-states is about the history: add -history"},
		} {
			args := append([]string{"backup"}, c.args...)
			if c.args == nil {
				args = []string{"export", "-states", dir}
			}
			code, out, errs := run(t.Context(), args...)
			if code != c.code || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
			}
		}
		if names := namesIn(t, to); !slices.Equal(names, []string{"a.db", "b.db", "c.db", "rest.new"}) {
			t.Errorf("there is %q", names)
		}
		index := lastSegment(t, dir) + segment.IndexMark
		must.Succeed(t, os.Remove(index))
		must.Succeed(t, os.Mkdir(index, 0o700)) // it cannot be copied
		code, _, errs = run(t.Context(), "backup", "-history", filepath.Join(to, "h"), dir, filepath.Join(to, "d.db"))
		if names := namesIn(t, to); code != cli.CodeFailed || !strings.Contains(errs, "d.db is complete, but not the history: ") || slices.Contains(names, "h") || slices.Contains(names, "h.new") {
			t.Errorf("a copy that fails: exit code %d, %s, %q", code, errs, names)
		}
	})
}
