package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// TestCommands: each command line of router in a document has a command and flags that router help
// knows.
func TestCommands(t *testing.T) {
	t.Parallel()
	helps := map[string]string{}
	lines := 0
	for name, text := range readDocuments(t) {
		if name == "CHANGELOG.md" { // it names removed flags, too
			continue
		}
		for _, line := range commandLines(text) {
			lines++
			command, flags := wordsOf(line)
			if _, known := helps[command]; !known {
				out, err := routertest.Command(append([]string{"help"}, strings.Fields(command)...)...).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %s: %s", name, line, out)
				}
				helps[command] = string(out)
			}
			for _, flag := range flags {
				if !regexp.MustCompile(`(?m)(^|\s)-` + regexp.QuoteMeta(flag) + `\b`).MatchString(helps[command]) {
					t.Errorf("%s: %s: router help %s does not know -%s", name, line, command, flag)
				}
			}
		}
	}
	if lines < 60 {
		t.Errorf("only %d command lines were found", lines)
	}
}

var (
	codeLine = regexp.MustCompile("(?m)^(?:    |\\$ |    \\$ )(router [^\n]*)|`(router [^`\n]*)`")
	families = []string{"dlq", "plugin", "schema", "state"} // commands with subcommands
)

// commandLines returns the lines of code of a document that begin with router, and its code spans
// that do.
func commandLines(text string) (lines []string) {
	for _, m := range codeLine.FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1]+m[2])
	}
	return lines
}

var (
	quoted    = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	lineEnd   = regexp.MustCompile(`\s(#|\||>|&|2>).*`)
	flagWord  = regexp.MustCompile(`^\[?--?([a-z][a-z-]*)`)
	firstWord = regexp.MustCompile(`^[a-z]+$`)
)

// wordsOf returns the command of a command line, and its flags.
func wordsOf(line string) (command string, flags []string) {
	words := strings.Fields(lineEnd.ReplaceAllString(quoted.ReplaceAllString(line, "X"), ""))[1:]
	command = "run" // router -config config.yaml
	if len(words) > 0 && words[0] == "help" {
		return "", nil
	}
	if len(words) > 0 && firstWord.MatchString(words[0]) {
		command, words = words[0], words[1:]
	}
	if len(words) > 0 && slices.Contains(families, command) && firstWord.MatchString(words[0]) {
		command += " " + words[0]
	}
	for _, word := range words {
		if m := flagWord.FindStringSubmatch(word); m != nil {
			flags = append(flags, m[1])
		}
	}
	return command, flags
}

// TestWordsOf: flags in quotes, comments and other programs of a line are none of router.
func TestWordsOf(t *testing.T) {
	for line, want := range map[string]string{
		"router -config config.yaml":                   "run: config",
		"router get pods -o yaml --n x # not -this":    "get: o n",
		"router eval 'a -b' -object pod.yaml | cat -n": "eval: object",
		"router dlq list [-route R]":                   "dlq list: route",
		"router plugin pull -store DIR REF":            "plugin pull: store",
		"router":                                       "run: ",
	} {
		command, flags := wordsOf(line)
		if got := command + ": " + strings.Join(flags, " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

var (
	configuration = regexp.MustCompile("(?ms)^```yaml\n(version: 1\n.*?)^```$")
	moduleFile    = regexp.MustCompile(`\./[\w./-]+\.wasm`)
	moduleConfig  = regexp.MustCompile(`(?m)^      config: \{.*$`)
)

// TestConfigurations: router check accepts each whole configuration in a document without a
// warning. A module that the reader is to build is replaced by a small one, without configuration.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs(root + "/examples/plugins/label-audit/label-audit.wasm")
	must.Succeed(t, err)
	checked := 0
	for name, text := range readDocuments(t) {
		if name == "docs/MISTAKES.md" {
			continue
		}
		for _, m := range configuration.FindAllStringSubmatch(text, -1) {
			checked++
			file := filepath.Join(t.TempDir(), "config.yaml")
			config := moduleConfig.ReplaceAllString(moduleFile.ReplaceAllString(m[1], module), "")
			must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
			out, err := routertest.Command("check", "-strict", file).CombinedOutput()
			if err != nil {
				t.Errorf("%s:\n%s\n%s", name, m[1], out)
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d configurations were found", checked)
	}
}

// TestMakeTargets: each target of make in a document is in the Makefile.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must.Succeed(t, err)
	named := 0
	for name, text := range readDocuments(t) {
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			named++
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m[1]) + `:`).Match(makefile) {
				t.Errorf("%s: make %s: the Makefile has no such target", name, m[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d targets were found", named)
	}
}

// makeTarget is a target in a line of code, or in a code span.
var makeTarget = regexp.MustCompile("(?m)(?:^    |^\\$ |`)(?:[A-Z]+=\\S+ )?make ([a-z][a-z0-9/-]*)")
