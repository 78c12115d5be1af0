package commands

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// mistakeFiles are the documents with mistakes, and the least number of mistakes in each.
var mistakeFiles = map[string]int{"testdata/mistakes.md": 250, "../../docs/MISTAKES.md": 15}

// mistake is a configuration and the output of router check.
type mistake struct{ title, config, said string }

// rest completes a configuration of the file; each part is added if its key is absent.
var rest = map[string]string{
	"version:": "version: 1\n",
	"sources:": "sources: {pods: {resource: v1/pods}}\n",
	"sinks:":   "sinks: {out: {stdout: {}}}\n",
	"routes:":  "routes: [{name: r, from: pods, to: out}]\n",
}

// complete appends the rest to a configuration, so that its line numbers stay the same. A
// configuration that begins with a version is complete.
func complete(config string) string {
	if strings.HasPrefix(config, "version:") || strings.HasPrefix(config, "- ") {
		return config
	}
	for _, key := range []string{"version:", "sources:", "sinks:", "routes:"} {
		if !strings.Contains("\n"+config, "\n"+key) {
			config += rest[key]
		}
	}
	return config
}

var mistakePattern = regexp.MustCompile("(?s)### ([^\n]*)\n\n```yaml\n(.*?)```\n\n```text\n(.*?)```\n")

// TestMistakes shows that the golden of mistakes and docs/MISTAKES.md contain the exact output of
// router check; -update rewrites them.
func TestMistakes(t *testing.T) {
	// Guarantee: chain-checked, secrets-off-disk
	least := make(map[string]int)
	for name, n := range mistakeFiles {
		file, err := filepath.Abs(name)
		must.Succeed(t, err)
		least[file] = n
	}
	t.Chdir(t.TempDir())
	t.Setenv("REGION", "eu")
	must.Succeed(t, os.WriteFile("guest.wasm", working(), 0o600))
	for file, want := range least {
		text := mustRead(t, file)
		now, mistakes := compareMistakes(t, text)
		if n := strings.Count(text, "\n### "); n != mistakes || n < want {
			t.Errorf("%s has %d titles and %d mistakes, want at least %d", file, n, mistakes, want)
		}
		if *update {
			must.Succeed(t, os.WriteFile(file, []byte(now), 0o644))
		}
	}
}

// compareMistakes returns the text with the present output of router check, and the number of
// mistakes.
func compareMistakes(t *testing.T, text string) (now string, mistakes int) {
	t.Helper()
	distinct := make(map[string]bool)
	now = mistakePattern.ReplaceAllStringFunc(text, func(section string) string {
		mistakes++
		parts := mistakePattern.FindStringSubmatch(section)
		m := mistake{parts[1], parts[2], parts[3]}
		said := m.check(t)
		for line := range strings.Lines(said) {
			if place, message, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(place, "config.yaml") {
				distinct[place+message[strings.LastIndex(message, ": ")+1:]] = true
			}
		}
		if said != m.said && !*update {
			t.Errorf("%s: it says\n%s\nwant\n%s", m.title, said, m.said)
		}
		return fmt.Sprintf("### %s\n\n```yaml\n%s```\n\n```text\n%s```\n", m.title, m.config, said)
	})
	if len(distinct) < min(mistakes, 80) {
		t.Errorf("of %d mistakes there are only %d different messages", mistakes, len(distinct))
	}
	return now, mistakes
}

// check returns the output of router check.
func (m *mistake) check(t *testing.T) string {
	t.Helper()
	must.Succeed(t, os.WriteFile("config.yaml", []byte(complete(m.config)), 0o600))
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &stdout, &stderr)
	warned := strings.HasSuffix(stdout.String(), "config.yaml: ok\n")
	if code != map[bool]int{true: cli.CodeOK, false: cli.CodeUsage}[warned] {
		t.Errorf("%s: exit code %d", m.title, code)
	}
	if stderr.Len() == 0 {
		t.Errorf("%s: nothing is said", m.title)
	}
	for line := range strings.Lines(stderr.String()) {
		if warned && strings.HasPrefix(line, "config.yaml") && !strings.Contains(line, ": warning: ") {
			t.Errorf("%s: a mistake, and yet all is well: %s", m.title, line)
		}
	}
	return stderr.String()
}

// TestCheckOK shows that a comment at the end of a line marks it as intended.
func TestCheckOK(t *testing.T) {
	t.Chdir(t.TempDir())
	const config = `sources: {pods: {resource: v1/pods}}
routes:
  - name: r
    from: pods
    filter: |
      object.spec.nodeName == "n1"%s
      && object.metadata.namespace == "a"
    ops: [added, sync]%s
    to: out
`
	for _, c := range []struct {
		block, line string
		warnings    int
	}{
		{"", "", 2},
		{"", " # check: ok", 1},
		{" // check: ok", "", 1},
		{" // the scheduler is ours, check: ok", " # after an upgrade we resync; check: ok", 0},
		{"", " # check: okay", 2},
		{"", " # check this", 2},
	} {
		m := mistake{config: fmt.Sprintf(config, c.block, c.line)}
		must.Succeed(t, os.WriteFile("config.yaml", []byte(complete(m.config)), 0o600))
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &stdout, &stderr); code != cli.CodeOK {
			t.Errorf("exit code %d", code)
		}
		if code := run(t.Context(), []string{"check", "-strict", "-config", "config.yaml"}, &bytes.Buffer{}, &bytes.Buffer{}); (code == cli.CodeOK) != (c.warnings == 0) {
			t.Errorf("%q %q: exit code %d with -strict", c.block, c.line, code)
		}
		if n := strings.Count(stderr.String(), ": warning: "); n != c.warnings {
			t.Errorf("%q %q: %d warnings, want %d\n%s", c.block, c.line, n, c.warnings, &stderr)
		}
	}
	// An expression that may cost too much is refused unless its line is marked as intended.
	for _, c := range []struct {
		comment string
		code    int
	}{{"", cli.CodeUsage}, {" // check: ok", cli.CodeOK}} {
		m := mistake{config: `routes:
  - name: r
    from: pods
    filter: |
      object.spec.volumes.exists(v, object.spec.containers.exists(c, object.spec.tolerations.exists(t, v.name == c.name && t.key == v.name)))` + c.comment + `
    to: out
`}
		must.Succeed(t, os.WriteFile("config.yaml", []byte(complete(m.config)), 0o600))
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &bytes.Buffer{}, &stderr); code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.comment, code, c.code, &stderr)
		}
	}
	// A mark does not make a mistake valid.
	must.Succeed(t, os.WriteFile("config.yaml", []byte(complete("state: 1 # check: ok\n")), 0o600))
	if code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &bytes.Buffer{}, &bytes.Buffer{}); code != cli.CodeUsage {
		t.Errorf("exit code %d", code)
	}
}
