package commands

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/cli"
)

// TestCommands: each command has a help in which everything has its place, and examples with flags
// that the command has.
func TestCommands(t *testing.T) {
	var walk func(words []string, commands []cli.Command)
	walk = func(words []string, commands []cli.Command) {
		for i := range commands {
			c := &commands[i]
			name := append(words[:len(words):len(words)], c.Name)
			checkHelp(t, name, c)
			walk(name, c.Commands)
		}
	}
	walk(nil, program(components()).Commands)
}

var (
	flagLine  = regexp.MustCompile(`(?m)^  (-[a-z-]+)( [^ ]+)?(  |\n)`)
	flagInUse = regexp.MustCompile(` (-[a-z][a-z-]*)`)
	quoted    = regexp.MustCompile(`'[^']*'`)
)

func checkHelp(t *testing.T, name []string, c *cli.Command) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"help"}, name...), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("help %s: exit code %d: %s", name, code, &stderr)
	}
	if c.Summary == "" || strings.HasSuffix(c.Summary, ".") || c.Setup == nil && len(c.Commands) == 0 {
		t.Errorf("%s: the summary is %q, and it has no commands and no function", name, c.Summary)
	}
	flags := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(stdout.String(), -1) {
		flags[m[1]] = true
		if value := strings.TrimSpace(m[2]); value == "value" || value == "string" || value == "duration" || value == "int" {
			t.Errorf("%s %s: the usage text has no placeholder in backquotes", name, m[1])
		}
	}
	for line := range strings.Lines(stdout.String()) {
		if n := utf8.RuneCountInString(line); n > 101 && !strings.HasPrefix(line, "  router ") && !strings.Contains(line, "|") {
			t.Errorf("%s: a line of the help has %d columns: %s", name, n, line)
		}
	}
	for _, e := range c.Examples {
		line := quoted.ReplaceAllString(e.Line, "")
		_, own, ok := strings.Cut(line, "router ")
		own, _, _ = strings.Cut(" "+own, " | ") // flags of another program
		if !ok || e.Text == "" {
			t.Errorf("%s: the example %q is none of router, or without a text", name, e.Line)
		}
		for _, m := range flagInUse.FindAllStringSubmatch(own, -1) {
			if !flags[m[1]] {
				t.Errorf("%s: the example %q has the flag %s, which the command has not", name, e.Line, m[1])
			}
		}
	}
}
