package statecmd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/statecmd"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write the goldens of testdata")

// fixture is a state folder with every kind of content.
const fixture = "../engine/testdata/format8"

// stateOf returns a folder with a copy of the fixture's state file.
func stateOf(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := os.ReadFile(filepath.Join(fixture, "state.db"))
	must.Succeed(t, err)
	path := filepath.Join(dir, "state.db")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	must.Succeed(t, os.Chtimes(path, at, at))
	return dir
}

// run runs a command line and returns its exit code and output.
func run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := cli.Program{Command: cli.Command{Name: "router", Commands: []cli.Command{statecmd.Command()}}}
	code = p.Main(ctx, cli.Streams{Out: &out, Err: &errs, Raw: &out}, append([]string{"state"}, args...))
	return code, out.String(), errs.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%v\ngot\n%swant\n%s", err, got, want)
	}
}

var ago = regexp.MustCompile(`[0-9hms]+ ago`)

func TestInspect(t *testing.T) {
	dir := stateOf(t)
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"inspect.txt", []string{dir}},
		{"inspect.txt", []string{filepath.Join(dir, "state.db")}},
		{"inspect.json", []string{"-o", "json", dir}},
	} {
		code, out, errs := run(t.Context(), append([]string{"inspect"}, c.args...)...)
		if code != cli.CodeOK || errs != "" {
			t.Errorf("%q: exit code %d, %s", c.args, code, errs)
		}
		golden(t, c.golden, strings.ReplaceAll(ago.ReplaceAllString(out, "AGE ago"), dir, "DIR"))
	}
	if names := namesIn(t, dir); !slices.Equal(names, []string{"state.db"}) {
		t.Errorf("the folder has %q afterwards", names)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// configured writes a configuration with a state folder.
func configured(t *testing.T, dir, listen string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "config.yaml")
	state := ""
	if dir != "" {
		state = fmt.Sprintf("state: {dir: %q}\n", dir)
	}
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, `version: 1
cluster: {name: test}
%s%ssources:
  pods: {resource: v1/pods}
  ours: {resource: v1/pods}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, to: out}]
`, state, listen), 0o600))
	return file
}

// TestInspectSources: with a configuration, the watches have the names of their sources.
func TestInspectSources(t *testing.T) {
	dir := t.TempDir()
	specs, err := informer.SpecsOf(&config.Source{Resource: "v1/pods", Cache: config.CacheFull})
	must.Succeed(t, err)
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(dir, "state.db")})
	must.Succeed(t, err)
	pods := &event.Resource{GroupVersionResource: specs[0].Resource}
	var objects []*event.Object
	for _, name := range []string{"a", "b"} {
		o, err := event.ParseObject(pods, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"uid":%q,"resourceVersion":"1"},"secret":"body"}`, name, name))
		must.Succeed(t, err)
		objects = append(objects, o)
	}
	must.Succeed(t, db.Write(checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: specs[0].ID(), Applied: "77", Put: objects}}}))
	must.Succeed(t, db.Close())
	code, out, errs := run(t.Context(), "inspect", "-config", configured(t, dir, ""))
	if code != cli.CodeOK || !regexp.MustCompile(`(?m)^ours,pods +v1 Pod +2 +0 +77$`).MatchString(out) || strings.Contains(out, "body") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
}

// TestExport: the lines are those of the golden of the fixture; its Secret has no data in it.
func TestExport(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(fixture, "export.ndjson"))
	must.Succeed(t, err)
	if code, out, errs := run(t.Context(), "export", stateOf(t)); code != cli.CodeOK || out != string(want) || errs != "" {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

// TestUnreadable: each file that cannot be read is one line with the reason and the remedy, and is
// left unchanged.
func TestUnreadable(t *testing.T) {
	// Guarantee: downgrade
	write := func(name, text string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, name)
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) (path string)
		code    int
		want    string
	}{
		"nothing":   {func(_ *testing.T, dir string) string { return filepath.Join(dir, "x") }, 2, "there is no state folder or state file"},
		"no state":  {func(t *testing.T, _ string) string { t.Helper(); return t.TempDir() }, 2, "there is no state file"},
		"empty":     {write("state.db", ""), 2, "damaged: both meta pages are invalid: if it is a state file, restore a backup"},
		"foreign":   {write("notes.txt", strings.Repeat("text ", 5000)), 2, "both meta pages are invalid"},
		"truncated": {func(t *testing.T, dir string) string { t.Helper(); return truncated(t, dir) }, 2, "the state file is damaged"},
		"newer":     {func(t *testing.T, dir string) string { t.Helper(); return newer(t, dir) }, 1, "has format 9, which a newer version wrote, and this version reads formats 1 to 8"},
		"in use":    {func(t *testing.T, dir string) string { t.Helper(); return inUse(t, dir) }, 1, fmt.Sprintf("is used by process %d", os.Getpid())},
	} {
		for _, command := range []string{"inspect", "export"} {
			dir := stateOf(t)
			path := c.prepare(t, dir)
			before := namesIn(t, dir)
			code, out, errs := run(t.Context(), command, path)
			if code != c.code || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("%s of %s: exit code %d, %s%s", command, name, code, out, errs)
			}
			if after := namesIn(t, dir); !slices.Equal(after, before) {
				t.Errorf("%s of %s: the folder has %q, before %q", command, name, after, before)
			}
		}
	}
	code, _, errs := run(t.Context(), "inspect", "-config", configured(t, "", ""))
	if code != cli.CodeUsage || !strings.Contains(errs, "has no state.dir") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

func truncated(t *testing.T, dir string) string {
	t.Helper()
	must.Succeed(t, os.Truncate(filepath.Join(dir, "state.db"), 20000))
	return dir
}

func newer(t *testing.T, dir string) string {
	t.Helper()
	value := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 9), 9)
	value = binary.BigEndian.AppendUint32(value, crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)))
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
	must.Succeed(t, err)
	must.Succeed(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), value) }))
	must.Succeed(t, db.Close())
	return dir
}

func inUse(t *testing.T, dir string) string {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(dir, "state.db")})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	return dir
}
