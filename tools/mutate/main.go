// Mutate shows that the tests notice broken promises: it breaks them one at a time and runs the
// tests that make test or make e2e runs in some packages, with the mutation and without. A mutation
// that no test notices is an error. Do not run other tests at the same time: they share
// bin/tests/router.
//
//	go run ./tools/mutate            # all of them
//	go run ./tools/mutate limit      # those of a guarantee
//
// The files of the repository stay as they are: the go command replaces them by an overlay.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	dir, err := os.MkdirTemp("", "deltarouter-mutate-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	unnoticed, err := run(os.Stdout, dir, os.Args[1:])
	_ = os.RemoveAll(dir)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case unnoticed > 0:
		fmt.Fprintln(os.Stderr, "mutations that no test notices:", unnoticed)
		os.Exit(1)
	}
}

// run tests the mutations of some guarantees, or all, and prints the first tests that failed.
func run(out io.Writer, dir string, guarantees []string) (unnoticed int, err error) {
	for i, m := range mutations {
		if len(guarantees) > 0 && !slices.Contains(guarantees, m.guarantee) {
			continue
		}
		overlay, err := m.overlay(dir, i)
		if err != nil {
			return 0, err
		}
		failed, err := m.test("-overlay=" + overlay)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", m.promise, err)
		}
		already, err := m.test("")
		if err != nil {
			return 0, fmt.Errorf("%s, without the mutation: %w", m.promise, err)
		}
		if len(already) > 0 {
			return 0, fmt.Errorf("%s: these tests fail without the mutation, too: %s", m.promise, strings.Join(already, ", "))
		}
		verdict := "noticed by " + strings.Join(failed[:min(3, len(failed))], ", ")
		if more := len(failed) - 3; more > 0 {
			verdict += fmt.Sprintf(" and %d more", more)
		}
		if len(failed) == 0 {
			verdict = "NOT NOTICED"
			unnoticed++
		}
		fmt.Fprintf(out, "%s (%s): %s\n", m.guarantee, m.promise, verdict)
	}
	return unnoticed, nil
}

// overlay writes the mutated file and an overlay with it, and returns the path of the overlay.
func (m *mutation) overlay(dir string, i int) (string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has the text of %q %d times, want once", m.file, m.promise, n)
	}
	mutated := filepath.Join(dir, fmt.Sprintf("%d.go", i))
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.now, 1)), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("%d.json", i))
	return file, os.WriteFile(file, overlay, 0o600)
}

// test runs the tests with another flag of the go command, and returns the names of those that
// failed. The flag is in GOFLAGS, because routertest builds the router by itself.
func (m *mutation) test(flag string) (failed []string, err error) {
	args := append([]string{"test", "-json", "-trimpath", "-tags=grpcnotrace", "-vet=off", "-timeout=20m"}, m.packages...)
	if m.tests != "" {
		args = append(args, "-run="+m.tests)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+flag))
	out, err := cmd.Output()
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	compiler := "" // its output
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		switch {
		case json.Unmarshal(lines.Bytes(), &e) != nil:
		case e.Action == "build-output":
			compiler += e.Output
		case e.Action == "build-fail":
			return nil, fmt.Errorf("the code does not compile:\n%s", compiler)
		case e.Action == "fail" && e.Test != "" && !strings.Contains(e.Test, "/"):
			failed = append(failed, e.Test)
		case strings.HasPrefix(e.Output, "panic: "):
			failed = append(failed, strings.TrimSpace(e.Output))
		}
	}
	if err != nil && len(failed) == 0 {
		return nil, fmt.Errorf("go test: %w", err)
	}
	return failed, lines.Err()
}
