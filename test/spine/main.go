// Spine follows one warm delta from the wire to the webhook and to the disk, and counts the
// functions, packages, goroutines and locks on its way. The delta is the update of a pod on a route
// with an equality as its filter, without a handler, with a webhook as its sink, and with a state
// folder; two updates came before, and the router is idle.
//
//	go run ./test/spine          # prints the figures of the recording in testdata
//	go run ./test/spine -w       # makes the recording again (a minute), and the table from it
//	go run ./test/spine -table   # makes the table of CONTRIBUTING.md again, as make generate does
//
// The recording is exact: the router is built with an overlay in which each function, method and
// function literal of cmd/router, internal and pkg records that it begins and ends, with its
// goroutine, and each statement x.Lock() and x.RLock() records that it takes a lock. The overlay
// keeps the line numbers; package trace holds the records of a window, which begins before the
// update, and ends when the webhook has the event and nothing has been recorded for a while after
// a change of the state folder: the cut with the update. Calls that the idle router makes too are
// left out: those by a function in a loop, whose edges are all in a window without a delta.
//
// The figures:
//
//   - stages: the rooms on the way. A stage is a run of functions, in the order in which they begin
//     on a goroutine, that lies in one room. figures.go lists the rooms. The packages in no room
//     are leaves, and belong to the stage that calls them.
//   - packages and functions: those that ran, and those that were waiting in a loop for the delta.
//   - upward re-entries: the distinct edges from a function of one package to a function of another
//     one that imports the first, directly or not: calls by an interface or a function value. A
//     library in between does not count: the edge is the one between functions of ours.
//   - lock acquisitions: how often a lock was taken. Of TryLock, of sync.Once, and of libraries
//     there is no record.
//   - goroutines: those that ran functions of ours for the delta. Each but the first one was handed
//     something; goroutines of libraries, such as those of net/http, are not seen.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	write := flag.Bool("w", false, "make the recording again, and the table of CONTRIBUTING.md")
	onlyTable := flag.Bool("table", false, "make the table of CONTRIBUTING.md again")
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *root, *write, *onlyTable)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "spine:", err)
		os.Exit(1)
	}
}

// recordingOf returns the path of the recording in the repository.
func recordingOf(root string) string {
	return filepath.Join(root, "test", "spine", "testdata", "spine.txt")
}

func run(ctx context.Context, root string, write, onlyTable bool) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if write {
		if err := rewrite(ctx, root); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(recordingOf(root))
	if err != nil {
		return err
	}
	way, err := read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if write || onlyTable {
		err = writeTable(root, way)
	}
	if err != nil || onlyTable {
		return err
	}
	imports, err := importsOf(ctx, root)
	if err == nil {
		report(os.Stdout, way, imports)
	}
	return err
}

// rewrite records the delta and writes the recording with its figures.
func rewrite(ctx context.Context, root string) error {
	way, err := record(ctx, root, os.Stderr)
	if err != nil {
		return err
	}
	imports, err := importsOf(ctx, root)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	document(&out, way, imports)
	return os.WriteFile(recordingOf(root), out.Bytes(), 0o644)
}

// document writes the file of the recording.
func document(out io.Writer, way []goroutine, imports map[string]map[string]bool) {
	fmt.Fprint(out, "The way of one delta, recorded by `go run ./test/spine -w`: ~ is a function that was running\n"+
		"before, + a function that is called, and ! a lock that is taken. ×3 is three times in a row.\n\n")
	report(out, way, imports)
	fmt.Fprintln(out)
	writeText(out, way)
}

// writeTable replaces the table of CONTRIBUTING.md.
func writeTable(root string, way []goroutine) error {
	docs, err := sentences(root)
	if err != nil {
		return err
	}
	rows, err := table(rowsOf(way), docs)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "CONTRIBUTING.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := withTable(string(text), rows)
	if err != nil || now == string(text) {
		return err
	}
	return os.WriteFile(file, []byte(now), 0o644)
}
