package file_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/file"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func env() plugins.SinkEnv {
	return plugins.SinkEnv{Env: plugins.Env{Name: "log", Log: slog.New(slog.DiscardHandler)}}
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	return sinktest.OpenIn(t, file.Kind(), config, env())
}

// numbered returns events with the ids from, from+1, and so on.
func numbered(from, n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{
			ID: strconv.Itoa(from + i), Type: "t", Source: "/s", Time: time.Unix(0, 0), Data: fmt.Appendf(nil, "{\n\"x\":%q}", strings.Repeat("é\n", 20)),
		}
	}
	return events
}

func write(t *testing.T, s plugins.Sink, events []event.Event) {
	t.Helper()
	if errs := s.Write(t.Context(), events); errs != nil {
		t.Fatal(errs)
	}
}

// ids returns the ids of the events of a file. Each line must be one complete event.
func ids(t *testing.T, path string) (all []int) {
	t.Helper()
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	if n := len(content); n > 0 && content[n-1] != '\n' {
		t.Errorf("%s ends within a line", filepath.Base(path))
	}
	for line := range strings.Lines(string(content)) {
		var e struct{ SpecVersion, ID string }
		n := 0
		err := json.Unmarshal([]byte(line), &e)
		if err == nil {
			n, err = strconv.Atoi(e.ID)
		}
		if err != nil || e.SpecVersion != "1.0" {
			t.Errorf("%s has the line %q", filepath.Base(path), line)
		}
		all = append(all, n)
	}
	return all
}

func count(from, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = from + i
	}
	return all
}

func equal(t *testing.T, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestContract(t *testing.T) {
	for _, more := range []string{"", ", fsync: true", ", maxSize: 4Ki, maxFiles: 3"} {
		plugintest.RunSink(t, plugintest.Sink{
			Kind: file.Kind(), Config: fmt.Sprintf("{path: %q%s}", filepath.Join(t.TempDir(), "events.jsonl"), more), Env: env(),
		})
	}
}

// TestHalfLines: a partial line of a crash is removed before the next write. A complete line
// without its newline gets one.
func TestHalfLines(t *testing.T) {
	// Guarantee: half-lines
	path := filepath.Join(t.TempDir(), "events.jsonl")
	t.Run("before", func(t *testing.T) { write(t, open(t, fmt.Sprintf("path: %q", path)), numbered(0, 2)) })
	whole, err := os.ReadFile(path)
	must.Succeed(t, err)
	first := strings.IndexByte(string(whole), '\n') + 1
	for _, tt := range []struct {
		name    string
		content string
		want    []int
	}{
		{"whole", string(whole), []int{0, 1, 7}},
		{"half", string(whole[:len(whole)-10]), []int{0, 7}},
		{"without its end", string(whole[:len(whole)-1]), []int{0, 1, 7}},
		{"half of the only one", string(whole[:first-5]), []int{7}},
		{"one byte", string(whole[:first+1]), []int{0, 7}},
		{"a long half", string(whole) + `{"specversion":"1.0","id":"` + strings.Repeat("x", 200_000), []int{0, 1, 7}},
		{"empty", "", []int{7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must.Succeed(t, os.WriteFile(path, []byte(tt.content), 0o600))
			write(t, open(t, fmt.Sprintf("path: %q", path)), numbered(7, 1))
			equal(t, "the file", ids(t, path), tt.want)
		})
	}
}

// TestForeignLine: the last line of another program is kept, although it has no newline and is not
// JSON.
func TestForeignLine(t *testing.T) {
	// Guarantee: files-private
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for _, line := range []string{"root:x:0:0", `{"spectrum":`, `{"specversion":"0.3","id":"`} {
		must.Succeed(t, os.WriteFile(path, []byte(line), 0o600))
		t.Run("write", func(t *testing.T) { write(t, open(t, fmt.Sprintf("path: %q", path)), numbered(7, 1)) })
		got, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(got), line+"\n{") {
			t.Errorf("%s became %.80s (%v)", line, got, err)
		}
	}
}

// TestSymbolicLink: the sink does not write through a symbolic link at its path, even if the link
// replaces its file.
func TestSymbolicLink(t *testing.T) {
	// Guarantee: files-private
	dir := t.TempDir()
	path, target := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "target")
	must.Succeed(t, os.WriteFile(target, []byte("kept"), 0o600))
	s := open(t, fmt.Sprintf("path: %q", path))
	write(t, s, numbered(0, 1))
	moved := filepath.Join(dir, "moved")
	must.Succeed(t, errors.Join(os.Rename(path, moved), os.Symlink(moved, path)))
	if errs := s.Write(t.Context(), numbered(1, 1)); len(errs) != 1 || errs[0] == nil || !strings.Contains(errs[0].Error(), "symbolic link") {
		t.Errorf("a link to the file that the sink wrote: %v", errs)
	}
	must.Succeed(t, errors.Join(os.Remove(path), os.Symlink(target, path)))
	if errs := s.Write(t.Context(), numbered(1, 1)); len(errs) != 1 || errs[0] == nil || !strings.Contains(errs[0].Error(), "symbolic link") {
		t.Errorf("a link to another file: %v", errs)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "kept" {
		t.Errorf("the other file holds %q (%v)", got, err)
	}
}

// TestRotation: files are rotated by size, each event is in exactly one of them, and the oldest are
// removed first. Files of other programs stay, and so do rotated files that one has compressed.
func TestRotation(t *testing.T) {
	// Guarantee: renamed-file
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	others := []string{
		"events-2026.jsonl", "events-20260101T000000.000000000Z.txt", "other-20260101T000000.000000000Z.jsonl", "events.jsonl.1",
		"events-20260101T000000.000000000Z.jsonl.gz", "events-20260101T000000.000000000Z-mine.jsonl",
	}
	for _, name := range others {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
	}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "events-20260101T000000.000000000Z.jsonl"), 0o700)) // is no file
	s := open(t, fmt.Sprintf("{path: %q, maxSize: 4Ki, maxFiles: 3}", path))
	const n = 200
	for i := range n {
		write(t, s, numbered(i, 1))
	}
	aside, err := filepath.Glob(filepath.Join(dir, "events-20[0-9]*T*Z.jsonl"))
	aside = slices.DeleteFunc(aside, func(name string) bool { return strings.Contains(name, "20260101T") })
	if err != nil || len(aside) != 3 {
		t.Fatalf("%v was rotated, %v", aside, err)
	}
	slices.Sort(aside)
	var all []int
	for _, name := range append(aside, path) {
		if info, err := os.Stat(name); err != nil || info.Size() > 4096 || info.Size() < 10 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		all = append(all, ids(t, name)...)
	}
	equal(t, "all files", all, count(n-len(all), len(all)))
	if len(all) < 40 {
		t.Errorf("only %d events are left", len(all))
	}
	for _, name := range others {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(content) != "mine" {
			t.Errorf("%s: %s, %v", name, content, err)
		}
	}
}

// TestNeverPutAside: with maxFiles 0 the file grows.
func TestNeverPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	s := open(t, fmt.Sprintf("{path: %q, maxSize: 4Ki, maxFiles: 0}", path))
	for i := range 100 {
		write(t, s, numbered(i, 1))
	}
	equal(t, "the file", ids(t, path), count(0, 100))
}

// TestMoved: no mode of logrotate loses or repeats an event.
func TestMoved(t *testing.T) {
	// Guarantee: renamed-file
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := open(t, fmt.Sprintf("path: %q", path))
	write(t, s, numbered(0, 3))

	if err := os.Rename(path, path+".1"); err != nil { // create, by the test
		t.Fatal(err)
	}
	write(t, s, numbered(3, 2))
	equal(t, "renamed", ids(t, path+".1"), count(0, 3))
	equal(t, "after the renaming", ids(t, path), count(3, 2))

	must.Succeed(t, os.Rename(path, path+".2"))
	if err := os.WriteFile(path, nil, 0o600); err != nil { // create, by logrotate
		t.Fatal(err)
	}
	write(t, s, numbered(5, 2))
	equal(t, "replaced", ids(t, path+".2"), count(3, 2))
	equal(t, "after the replacement", ids(t, path), count(5, 2))

	if err := os.Truncate(path, 0); err != nil { // copytruncate
		t.Fatal(err)
	}
	write(t, s, numbered(7, 2))
	equal(t, "after copytruncate", ids(t, path), count(7, 2))

	must.Succeed(t, os.Remove(path))
	write(t, s, numbered(9, 1))
	equal(t, "after its removal", ids(t, path), count(9, 1))
}

// TestFolderGone: the sink is unavailable while its folder does not exist.
func TestFolderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	s := open(t, fmt.Sprintf("path: %q", filepath.Join(dir, "events")))
	errs := s.Write(t.Context(), numbered(0, 2))
	if len(errs) != 2 || errs[0] == nil || errs[1] == nil || plugins.ClassOf(errs[0]) == plugins.Rejected {
		t.Fatalf("got %v", errs)
	}
	must.Succeed(t, os.Mkdir(dir, 0o700))
	write(t, s, numbered(0, 2))
	equal(t, "the file", ids(t, filepath.Join(dir, "events")), count(0, 2))
}

func TestNoFile(t *testing.T) {
	s := open(t, fmt.Sprintf("path: %q", t.TempDir()))
	if errs := s.Write(t.Context(), numbered(0, 1)); len(errs) != 1 || errs[0] == nil {
		t.Errorf("a folder was written to: %v", errs)
	}
}

// TestProbe: a probe leaves no trace.
func TestProbe(t *testing.T) {
	// Guarantee: check-sends-nothing
	dir := t.TempDir()
	probe := func(path string) error {
		return file.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, fmt.Sprintf("path: %q", path)))
	}
	must.Report(t, probe(filepath.Join(dir, "events")))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v (%v)", left, err)
	}
	if err := probe(filepath.Join(dir, "none", "events")); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("without a folder: %v", err)
	}
	if err := probe(dir); err == nil {
		t.Error("a folder will do")
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "there"), []byte("x"), 0o600))
	must.Report(t, probe(filepath.Join(dir, "there")))
	if content, _ := os.ReadFile(filepath.Join(dir, "there")); string(content) != "x" {
		t.Errorf("it left %q", content)
	}
}

func TestProblems(t *testing.T) {
	for config, want := range map[string]string{
		"{}": "path is missing", "{path: x, maxSize: 10}": "maxSize", "{path: x, maxFiles: -1}": "maxFiles", "{path: x, rotate: 1}": "unknown key",
	} {
		problems := file.Kind().Check(plugintest.Node(t, config))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%s: %v, want %q", config, problems, want)
		}
	}
}

// subjects counts the subjects of the events of a file.
func subjects(t *testing.T, path string) map[string]int {
	t.Helper()
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	all := make(map[string]int)
	for line := range strings.Lines(string(content)) {
		var e struct{ Subject string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("the line %q: %v", line, err)
		}
		all[e.Subject]++
	}
	return all
}

func TestMain(m *testing.M) { leaks.Main(m) }
