// Slow prints which packages and tests take the most time, and the time of linking each test
// binary. It reads the output of go test -json, and an action graph of the go command:
//
//	go test -json -debug-actiongraph=actions.json ./... | go run ./tools/slow -actions "$PWD/actions.json"
//
// The output of failed tests is printed first. It exits with 1 if there is one, so that it can
// stand behind go test in a pipe.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	most := flag.Int("n", 20, "the number of rows of each table")
	actions := flag.String("actions", "", "the file that go test -debug-actiongraph has written; empty: without the table of linking")
	flag.Parse()
	failed, err := run(os.Stdout, os.Stdin, *actions, *most)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "slow:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// run prints the tables. failed reports whether a test or a build failed.
func run(out io.Writer, results io.Reader, actions string, most int) (failed bool, err error) {
	r, err := read(results)
	if err != nil {
		return false, fmt.Errorf("the output of go test -json: %w", err)
	}
	for _, text := range r.failures {
		fmt.Fprint(out, text)
	}
	tables := []table{{"packages", r.packages}, {"tests", r.tests}}
	if actions != "" {
		text, err := os.ReadFile(actions)
		if err != nil {
			return false, fmt.Errorf("the action graph: %w", err)
		}
		links, err := linksOf(text)
		if err != nil {
			return false, fmt.Errorf("the action graph: %w", err)
		}
		tables = append(tables, table{"linking", links})
	}
	for _, t := range tables {
		t.print(out, most)
	}
	return len(r.failures) > 0, nil
}

// table is the times of one kind.
type table struct {
	title string
	rows  []row
}

type row struct {
	name string
	took time.Duration
}

// print prints the rows that take the most time, and the sum of all.
func (t table) print(out io.Writer, most int) {
	rows := slices.Clone(t.rows)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.took, a.took), strings.Compare(a.name, b.name))
	})
	var sum time.Duration
	for _, r := range rows {
		sum += r.took
	}
	fmt.Fprintf(out, "\n%s: %d, %.1f s in all\n", t.title, len(rows), sum.Seconds())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range rows[:min(most, len(rows))] {
		fmt.Fprintf(w, "%.1f s\t  %s\n", r.took.Seconds(), r.name)
	}
	_ = w.Flush()
}

// results are the times of a run, and the output of failed tests, packages and builds.
type results struct {
	packages, tests []row
	failures        []string
}

// testEvent is a line of go test -json, see go doc test2json.
type testEvent struct {
	Action      string
	Package     string
	ImportPath  string // of a build
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// read reads the output of go test -json. Subtests count for the test that contains them.
func read(from io.Reader) (r results, err error) {
	type subject struct{ path, test string }
	output := map[subject]*strings.Builder{}
	lines := json.NewDecoder(from)
	for {
		var e testEvent
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return r, err
		}
		of := subject{cmp.Or(e.Package, e.ImportPath), strings.SplitN(e.Test, "/", 2)[0]}
		switch e.Action {
		case "output", "build-output":
			if output[of] == nil {
				output[of] = &strings.Builder{}
			}
			output[of].WriteString(e.Output)
		case "pass", "fail", "build-fail":
			took := row{of.path, time.Duration(e.Elapsed * float64(time.Second))}
			switch {
			case e.Action == "build-fail" || strings.Contains(e.Test, "/"):
			case e.Test == "":
				r.packages = append(r.packages, took)
			default:
				took.name += " " + e.Test
				r.tests = append(r.tests, took)
			}
			if e.Action != "pass" && output[of] != nil && !strings.Contains(e.Test, "/") {
				r.failures = append(r.failures, output[of].String())
			}
			if !strings.Contains(e.Test, "/") {
				delete(output, of)
			}
		}
	}
}

// linksOf returns the times of linking in an action graph, by package. The go command does not
// document its form: an action without times was not necessary.
func linksOf(graph []byte) (links []row, err error) {
	var actions []struct {
		Mode      string
		Package   string
		TimeStart time.Time
		TimeDone  time.Time
	}
	if err := json.Unmarshal(graph, &actions); err != nil {
		return nil, err
	}
	for _, a := range actions {
		if a.Mode == "link" && !a.TimeStart.IsZero() {
			links = append(links, row{strings.TrimSuffix(a.Package, ".test"), a.TimeDone.Sub(a.TimeStart)})
		}
	}
	return links, nil
}
