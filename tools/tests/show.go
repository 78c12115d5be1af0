package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json, see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that does not build
	Test       string
	Output     string
}

type testName struct{ pkg, test string }

// show prints what go test prints without -json: a line for each package, and the output of the
// tests that failed or did not end. It adds the reasons of the skipped tests.
func show(out io.Writer, events io.Reader, left *leftOut) error {
	outputs := make(map[testName]*strings.Builder)
	output := func(n testName) *strings.Builder {
		if outputs[n] == nil {
			outputs[n] = &strings.Builder{}
		}
		return outputs[n]
	}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			_, _ = out.Write(line) // of the go command itself
			continue
		}
		name := testName{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(out, e.Output)
		case e.Action == "output" && e.Test == "" && isResult(e.Output):
			fmt.Fprint(out, e.Output)
		case e.Action == "output":
			output(name).WriteString(e.Output)
		case e.Action == "skip" && e.Test != "":
			left.add(reason(output(name).String()))
			delete(outputs, name)
		case e.Action == "pass":
			delete(outputs, name)
		case e.Action == "fail" && e.Test != "":
			fmt.Fprint(out, output(name).String())
			delete(outputs, name)
		case e.Action == "fail":
			// Tests that did not end: the package panicked, or ran out of time.
			for _, n := range slices.SortedFunc(maps.Keys(outputs), func(a, b testName) int { return strings.Compare(a.test, b.test) }) {
				if n.pkg == e.Package {
					fmt.Fprint(out, outputs[n].String())
					delete(outputs, n)
				}
			}
		}
	}
}

// isResult reports whether a line of a package is its result.
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}

var skipped = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.*)$`)

// reason returns the last line that a skipped test logged.
func reason(output string) string {
	all := skipped.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return "without a reason"
	}
	return strings.TrimPrefix(all[len(all)-1][1], "SKIPPED: ")
}

// copyLines prints the output of a part that is no go test. A line "SKIPPED…" is the reason of a
// test that was left out.
func copyLines(out io.Writer, from io.Reader, left *leftOut) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if why, ok := strings.CutPrefix(lines.Text(), "SKIPPED\t"); ok {
			left.add(why)
			continue
		}
		fmt.Fprintln(out, lines.Text())
	}
	return lines.Err()
}

// leftOut counts skipped tests by their reason.
type leftOut struct{ reasons map[string]int }

func (l *leftOut) add(why string) {
	if l.reasons == nil {
		l.reasons = make(map[string]int)
	}
	l.reasons[why]++
}

// print prints one line, or nothing if nothing was left out.
func (l *leftOut) print(out io.Writer) {
	if len(l.reasons) == 0 {
		return
	}
	var words []string
	for _, why := range slices.Sorted(maps.Keys(l.reasons)) {
		if n := l.reasons[why]; n > 1 {
			why = fmt.Sprintf("%s (%d tests)", why, n)
		}
		words = append(words, why)
	}
	fmt.Fprintln(out, "left out:", strings.Join(words, "; "))
}
