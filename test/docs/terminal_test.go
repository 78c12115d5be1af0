package docs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// prompt is printed behind the output of each command, with its exit code.
const prompt = "--- exit code "

// terminal is a shell that runs the commands of a document one after the other, so that variables,
// folders and programs in the background last.
type terminal struct {
	stdin io.Writer
	lines chan string
}

// openTerminal starts a shell in a folder. All that it has started ends with the test.
func openTerminal(t *testing.T, dir string, env ...string) *terminal {
	t.Helper()
	shell := exec.Command("bash", "--noprofile", "--norc") // not CommandContext: the whole group is to be killed
	shell.Dir = dir
	shell.Env = append(os.Environ(), env...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := shell.StdinPipe()
	must.Succeed(t, err)
	out, in, err := os.Pipe() // one for both, to keep the order of lines
	must.Succeed(t, err)
	shell.Stdout, shell.Stderr = in, in
	must.Succeed(t, shell.Start())
	must.Succeed(t, in.Close())
	term := &terminal{stdin: stdin, lines: make(chan string)}
	done := make(chan struct{})
	go term.read(out, done)
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		close(done)
		_ = shell.Wait()
		_ = out.Close()
	})
	// A test run that is killed closes the input of the shell; its programs end with it.
	term.run(t, `trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT`)
	return term
}

// read sends the lines of the shell until the test is over.
func (term *terminal) read(out io.Reader, done <-chan struct{}) {
	defer close(term.lines)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		select {
		case term.lines <- scanner.Text():
		case <-done:
			return
		}
	}
}

// killed is bash's line about a program in the background that was killed.
var killed = regexp.MustCompile(`^bash: line \d+: +\d+ Killed`)

// run runs one command and returns its output and its exit code.
func (term *terminal) run(t *testing.T, command string) (output, code string) {
	t.Helper()
	_, err := fmt.Fprintf(term.stdin, "%s\necho \"%s$?\"\n", command, prompt)
	must.Succeed(t, err)
	timeout := time.After(routertest.Patience)
	for {
		select {
		case line, open := <-term.lines:
			code, end := strings.CutPrefix(line, prompt)
			switch {
			case !open:
				t.Fatalf("%s: the shell ended\n%s", command, output)
			case end:
				return output, code
			case !killed.MatchString(line):
				output += line + "\n"
			}
		case <-timeout:
			t.Fatalf("%s: still running after %s\n%s", command, routertest.Patience, output)
		}
	}
}

// expect runs a command and compares its output, if the document shows one. A command that only
// reads is repeated, as a reader does, until it prints the expected output.
func (term *terminal) expect(t *testing.T, c command) {
	t.Helper()
	output, code := term.run(t, c.text)
	if c.output == "" && code != "0" {
		t.Fatalf("$ %s\n%sexit code %s", c.text, output, code)
	}
	if c.output == "" || same(output, c.output) {
		return
	}
	defer func() {
		if t.Failed() {
			t.Logf("$ %s\nprints\n%swant\n%s", c.text, output, c.output)
		}
	}()
	if !reads.MatchString(c.text) {
		t.FailNow()
	}
	routertest.PollEvery(t, 200*time.Millisecond, c.text, func() bool {
		output, _ = term.run(t, c.text)
		return same(output, c.output)
	})
}

// reads matches commands that change nothing.
var reads = regexp.MustCompile(`^(cat|grep|tail|router (get|status)) ?`)

// varies is the part of an output that differs from run to run: the time of day and durations.
var varies = regexp.MustCompile(`\b\d\d:\d\d:\d\d\b|\b(\d+m)?\d+(\.\d+)?s\b`)

// same compares an output with that of a document.
func same(got, want string) bool {
	return varies.ReplaceAllString(got, "T") == varies.ReplaceAllString(want, "T")
}

// command is a command of a document, with the output that follows it.
type command struct{ text, output string }

// block is a file, "`name`:" before a fenced block, or the commands of a block of the language
// console.
var block = regexp.MustCompile("(?ms)^(?:`(?P<name>[\\w./-]+)`:\n\n)?```(?P<language>\\w+)\n(?P<content>.*?)^```$")

// readAlong writes the files of a document and runs its commands, in their order.
func readAlong(t *testing.T, term *terminal, text string) (commands, files int) {
	t.Helper()
	for _, match := range block.FindAllStringSubmatch(text, -1) {
		name, language, content := match[1], match[2], match[3]
		if name != "" {
			files++
			dir, _ := term.run(t, "pwd")
			file := filepath.Join(strings.TrimSpace(dir), filepath.FromSlash(name))
			must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o750))
			must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
		}
		if language != "console" {
			continue
		}
		for _, c := range session(content) {
			commands++
			term.expect(t, c)
		}
	}
	return commands, files
}

// session splits a block of the language console into its commands.
func session(content string) (commands []command) {
	for line := range strings.Lines(content) {
		if text, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, command{text: strings.TrimSpace(text)})
		} else if len(commands) > 0 {
			commands[len(commands)-1].output += line
		}
	}
	return commands
}
