package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestPlugin: each language has a handler, its SDK, a configuration with cases, and a README that
// begins with three commands. internal/commands builds and runs them.
func TestPlugin(t *testing.T) {
	for lang, files := range map[string][]string{
		"go":             {"main.go", "main_test.go", "go.mod", "sdk/go.mod", "sdk/internal/host/host_wasip1.go", "testdata/phase.txtar"},
		"rust":           {"pod-phase.rs", "Cargo.toml", "build.sh", "sdk/src/lib.rs"},
		"c":              {"pod-phase.c", "build.sh", "sdk/deltarouter.h"},
		"javascript":     {"pod-phase.js", "sdk/deltarouter.d.ts"},
		"assemblyscript": {"pod-phase.ts", "package.json", "sdk/package.json", "sdk/assembly/index.ts"},
	} {
		t.Run(lang, func(t *testing.T) {
			t.Chdir(t.TempDir())
			dir := filepath.Join("plugins", "pod-phase")
			build, err := Plugin(dir, lang)
			must.Succeed(t, err)
			for _, file := range append(files, "config.yaml", "config_test.yaml", "README.md") {
				text, err := os.ReadFile(filepath.Join(dir, file))
				must.Succeed(t, err)
				if s := string(text); s == "" || strings.Contains(s, "{{"+".") || strings.Contains(s, "<no value>") {
					t.Errorf("%s is\n%s", file, s)
				}
			}
			readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
			must.Succeed(t, err)
			commands := "\n\n    " + build + "\n    router test\n    router -config config.yaml\n\n"
			if !strings.Contains(string(readme), commands) {
				t.Errorf("README.md has not the commands %s\n%s", commands, readme)
			}
			_, err = Plugin(dir, lang)
			must.Fail(t, err, "exists already: remove it, or name another")
		})
	}
	if got := strings.Join(Languages(), " "); got != "assemblyscript c go javascript rust" {
		t.Errorf("the languages are %s", got)
	}
}

func TestPluginMistakes(t *testing.T) {
	for _, c := range []struct{ dir, lang, err string }{
		{"hello", "golang", `there is no template for the language "golang"`},
		{"hello", "rsut", `did you mean "rust"?`},
		{"Hello", "go", `"Hello" names the handler, too`},
		{"hello_world", "go", "lower-case letters, digits and hyphens"},
		{"-", "go", "names the handler"},
		{"/", "go", "names the handler"},
		{strings.Repeat("a", 64), "go", "names the handler"},
		{"file/hello", "go", "cannot be written: a part of its path is a file, not a folder"},
	} {
		t.Run(c.dir+" "+c.lang, func(t *testing.T) {
			t.Chdir(t.TempDir())
			must.Succeed(t, os.WriteFile("file", nil, 0o600))
			_, err := Plugin(c.dir, c.lang)
			must.Fail(t, err, c.err)
			if left, _ := filepath.Glob("*"); len(left) != 1 {
				t.Errorf("files were written: %v", left)
			}
		})
	}
}
