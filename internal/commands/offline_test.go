package commands

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestOffline runs the commands of each archive. The comment of an archive describes the test. A
// file run contains a command line, one argument a line, and the file out behind it the exit code,
// standard output and, behind ---, standard error. A file env sets variables for the commands
// behind it, and a file stdin is their standard input.
func TestOffline(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		name, err := filepath.Abs(file)
		must.Succeed(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, name) })
	}
}

var memoryLine = regexp.MustCompile(`(?m)^\{[^\n]*"msg":"memory of the router"[^\n]*\n`)

// execute runs a command line and returns the exit code and the output. If there is a file stdin,
// a process of its own runs the command and reads it.
func execute(t *testing.T, args []string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := 0
	if input, err := os.Open("stdin"); err == nil {
		defer input.Close()
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			must.Succeed(t, err)
		}
	} else {
		code = run(t.Context(), args, &stdout, &stderr)
	}
	got := fmt.Sprintf("%d\n%s", code, &stdout)
	// A container with a limit has this line.
	if log := memoryLine.ReplaceAllString(stderr.String(), ""); log != "" {
		got += "---\n" + log
	}
	return got
}

func golden(t *testing.T, file string) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	must.Succeed(t, err)
	t.Chdir(t.TempDir())
	var kept []txtar.File
	for i, f := range archive.Files {
		if f.Name == "out" {
			continue
		}
		switch kept = append(kept, f); f.Name {
		case "run":
		case "env":
			for line := range strings.Lines(string(f.Data)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				t.Setenv(name, value)
			}
			continue
		default:
			must.Succeed(t, os.MkdirAll(filepath.Dir(f.Name), 0o700))
			must.Succeed(t, os.WriteFile(f.Name, f.Data, 0o600))
			continue
		}
		got := execute(t, strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n"))
		kept = append(kept, txtar.File{Name: "out", Data: []byte(got)})
		if !*update && (i+1 == len(archive.Files) || string(archive.Files[i+1].Data) != got) {
			t.Errorf("%q:\n%s", f.Data, got)
		}
	}
	if archive.Files = kept; *update {
		must.Succeed(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}
