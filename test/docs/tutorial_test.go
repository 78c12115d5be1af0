package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestTutorial: every command of docs/TUTORIAL.md runs on a real API server, the kill -9 included,
// and prints the output that the document shows. `make build` is only looked up in the Makefile: the programs
// are those of this test run, and kubectl is a stand-in.
func TestTutorial(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/TUTORIAL.md"))
	must.Succeed(t, err)
	dir := shortTempDir(t)
	checkout := filepath.Join(dir, "checkout")
	must.Succeed(t, os.MkdirAll(filepath.Join(checkout, "bin"), 0o750))
	self, err := os.Executable()
	must.Succeed(t, err)
	for link, target := range map[string]string{
		"sdk": filepath.Join(root, "sdk"), "bin/router": routertest.Command().Path, "bin/sandbox": sandboxtest.Binary(t), "bin/kubectl": self,
	} {
		must.Succeed(t, os.Symlink(target, filepath.Join(checkout, link)))
	}
	term := openTerminal(t, checkout, "TMPDIR="+dir, "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	term.run(t, `make() { command make --dry-run -C "`+root+`" "$@" >/dev/null; }`)
	t.Cleanup(func() { showLogs(t, dir) })

	commands, files := readAlong(t, term, string(text))

	if commands < 20 || files < 4 {
		t.Errorf("docs/TUTORIAL.md has %d commands and %d files, want 20 and 4: is it still written as the test reads it?", commands, files)
	}
}

// shortTempDir returns a folder with a path that leaves room for the name of a socket in it.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "docs-") //nolint:usetesting // the path of t.TempDir is too long
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// showLogs shows the logs of the programs that the tutorial started, if it failed.
func showLogs(t *testing.T, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "tmp.*", "*.log")) // the pattern is right
	for _, log := range logs {
		text, err := os.ReadFile(log)
		t.Logf("%s (%v):\n%s", filepath.Base(log), err, strings.TrimSpace(string(text)))
	}
}
