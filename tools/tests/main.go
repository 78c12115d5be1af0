// Tests is behind the targets make test, race, e2e, test-all and soak: it runs go test in the
// modules of the repository, and the native tests of the SDKs. It continues after a failure.
//
//	go run ./tools/tests test
//	go run ./tools/tests e2e oldest      # on the oldest supported Kubernetes
//	go run ./tools/tests soak ledger     # one of targets.Slices
//
// It prints one line for each package, the output of the tests that failed, and in its last line
// the tests that were left out because something is not installed. The output of go test -json is
// kept in bin/tests/TARGET.json, for `go run ./tools/slow`.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/deltarouter/deltarouter/test/targets"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./tools/tests test|race|e2e [oldest]|test-all|soak [SLICE…]")
		os.Exit(2)
	}
	failed, err := run(os.Stdout, os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(2)
	}
	if len(failed) > 0 {
		fmt.Fprintln(os.Stderr, "tests failed in:", strings.Join(failed, " "))
		os.Exit(1)
	}
}

// run runs the parts of a target one after another and returns the names of the failed ones.
func run(out io.Writer, target string, names []string) (failed []string, err error) {
	repo, err := read(".")
	if err != nil {
		return nil, err
	}
	parts, err := repo.parts(target, names)
	if err != nil {
		return nil, err
	}
	if target == targets.Race || target == targets.All {
		if err := checkCompiler(); err != nil {
			return nil, err
		}
	}
	kept := filepath.Join("bin", "tests", target+".json")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return nil, err
	}
	events, err := os.Create(kept)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	var left leftOut
	for _, p := range parts {
		fmt.Fprintln(out, "---", p.name)
		ok, err := p.run(out, events, &left)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if !ok {
			failed = append(failed, p.name)
		}
	}
	left.print(out)
	return failed, nil
}

// run runs the command of a part. ok is false if a test failed.
func (p part) run(out, events io.Writer, left *leftOut) (ok bool, err error) {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	if p.json {
		err = show(out, io.TeeReader(stdout, events), left)
	} else {
		err = copyLines(out, stdout, left)
	}
	return cmd.Wait() == nil, err
}
