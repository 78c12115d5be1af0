package commands

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/test/must"
)

// hundred writes a hundred configurations, which are those of the examples several times, and
// returns their paths.
func hundred(tb testing.TB) (files []string) {
	tb.Helper()
	var examples []string
	for _, dir := range []string{"configs", "rules", "recipes"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "examples", dir, "*.yaml"))
		must.Succeed(tb, err)
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.yaml") {
				examples = append(examples, file)
			}
		}
	}
	dir := tb.TempDir()
	for i := range 100 {
		text, err := os.ReadFile(examples[i%len(examples)])
		must.Succeed(tb, err)
		files = append(files, filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)))
		must.Succeed(tb, os.WriteFile(files[i], text, 0o600))
	}
	return files
}

// included writes a configuration with a hundred includes of one file each, and returns its path.
func included(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	text := `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
include:
`
	for i := range 100 {
		name := fmt.Sprintf("team%d", i)
		text += fmt.Sprintf("  - {name: %s, files: %s.yaml, sources: [pods], sinks: [out], namespaces: [%s]}\n", name, name, name)
		route := fmt.Sprintf(`routes:
  - {name: restarts, from: pods, when: 'object.status.?containerStatuses.orValue([]).exists(c, c.restartCount > %d)', for: %dm, to: out}
`, i, i+1)
		must.Succeed(tb, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(route), 0o600))
	}
	path := filepath.Join(dir, "config")
	must.Succeed(tb, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// checked checks configurations.
func checked(tb testing.TB, args ...string) {
	tb.Helper()
	var stderr bytes.Buffer
	if code := run(tb.Context(), append([]string{"check", "-compiled", "none"}, args...), io.Discard, &stderr); code != 0 {
		tb.Fatalf("exit code %d\n%s", code, &stderr)
	}
}

// TestCheckBudget: a check of a hundred files takes below a second, of which most are allocations,
// and these can be counted exactly: what all files share is not read again for each of them.
func TestCheckBudget(t *testing.T) {
	const each = 30_000 // allocations for each file; reading the schemas takes 11,000
	builtin, err := schema.Builtin()
	must.Succeed(t, err)
	saved := t.TempDir()
	_, err = schema.Save(saved, builtin)
	must.Succeed(t, err)
	for name, args := range map[string][]string{
		"files":                         hundred(t),
		"files with a folder of theirs": append([]string{"-schemas", saved}, hundred(t)...),
		"includes":                      {included(t)},
	} {
		if got := testing.AllocsPerRun(1, func() { checked(t, args...) }); got > 100*each {
			t.Errorf("%s: %.0f allocations for each file, want at most %d", name, got/100, each)
		} else {
			t.Logf("%s: %.0f allocations for each file", name, got/100)
		}
	}
}

// BenchmarkCheck measures checks of a hundred configurations, and of one with a hundred includes.
func BenchmarkCheck(b *testing.B) {
	for name, args := range map[string][]string{"files": hundred(b), "includes": {included(b)}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				checked(b, args...)
			}
		})
	}
}
