// Package docs follows the documents like a reader: it writes their files and runs their commands.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		if err := kubectl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	routertest.Main(m)
}

// TestFirstHandler follows the section "Five minutes with Go" of docs/PLUGINS.md in an empty folder
// outside of the repository, without a module proxy, up to a configuration that `router check`
// accepts and a golden test that passes.
func TestFirstHandler(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	text := section(t, filepath.Join(root, "docs/PLUGINS.md"), "## Five minutes with Go\n", "## Five minutes with Rust\n")
	dir := t.TempDir()

	commands, files := follow(t, dir, strings.ReplaceAll(text, "/path/to/deltarouter", root))

	if commands < 4 || files < 4 {
		t.Errorf("the section has %d commands and %d files, want 4 of each: is it still written as the test reads it?", commands, files)
	}
	runIn(t, dir, "go", "test", "./...")
	check := routertest.Command("check", "-config", "config.yaml")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("router check: %v\n%s", err, out)
	}
}

// section returns the part of a document between two lines.
func section(t *testing.T, file, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	_, rest, found := strings.Cut(string(text), from)
	part, _, ended := strings.Cut(rest, to)
	if !found || !ended {
		t.Fatalf("%s has no section from %q to %q", file, from, to)
	}
	return part
}

// step matches a file, "`name`:" before a fenced block, or a command, which is indented by four
// spaces.
var step = regexp.MustCompile("(?ms)^`(?P<name>[\\w./-]+)`:\n\n```\\w*\n(?P<content>.*?)^```$|^    (?P<command>\\S[^\n]*)$")

// follow writes the files of a section and runs its commands in their order.
func follow(t *testing.T, dir, text string) (commands, files int) {
	t.Helper()
	for _, match := range step.FindAllStringSubmatch(text, -1) {
		name, content, command := match[1], match[2], match[3]
		if command != "" {
			commands++
			runIn(t, dir, "sh", "-c", command)
			continue
		}
		files++
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o750))
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return commands, files
}

func runIn(t *testing.T, dir string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // the commands of a document of ours
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}
