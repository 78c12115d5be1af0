package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

func example() report.Table {
	return report.Table{
		Part: "whole", Title: "Whole processes", Text: strings.Repeat("many words ", 20), Labels: []string{"task", "program"},
		Columns: []report.Column{
			{Name: "CPU µs", Format: "%.1f"},
			{Name: "CPU", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "whole", Title: "CPU of <a> task's program"}},
		},
		Rows: []report.Row{
			{Labels: []string{"ingest", report.Own}, Figures: []float64{12, 1}},
			{Labels: []string{"", "dynamic"}, Figures: []float64{324, 27}},
			{Labels: []string{"filter", "a | b"}, Figures: []float64{0.5, report.None()}},
		},
	}
}

// TestText: the terminal gets all columns at once, aligned.
func TestText(t *testing.T) {
	var out strings.Builder
	if err := report.New(&out, "").Add(example()); err != nil {
		t.Fatal(err)
	}
	const want = "\nWhole processes\n" +
		"  task    program      CPU µs    CPU\n" +
		"  ingest  deltarouter    12.0   1.00\n" +
		"          dynamic       324.0  27.00\n" +
		"  filter  a | b           0.5       \n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// TestDocument: the document has the ratios only, with the command and the machine. A second run
// replaces the sections of its parts and keeps the others.
func TestDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	other := example()
	other.Part, other.Title = "other", "Another"
	other.Columns[1].Chart = nil
	absolute := example()
	absolute.Part, absolute.Columns = "absolute", absolute.Columns[:1]
	text := write(t, file, []string{"absolute", "whole", "other"}, other, example(), absolute)
	const table = "| task | program | CPU |\n|---|---|--:|\n| ingest | deltarouter | 1.00 |\n|  | dynamic | 27.00 |\n| filter | a \\| b |  |\n"
	for _, part := range []string{
		table, "Measured by `bench -only whole`: ", "Measured by `bench -only other`: ", `srcset="img/bench/whole-dark.svg"`, `src="img/bench/whole-light.svg"`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}
	if strings.Contains(text, "absolute") || strings.Contains(text, "324") {
		t.Errorf("there are absolute figures in\n%s", text)
	}
	if strings.Index(text, "## Whole processes") > strings.Index(text, "## Another") {
		t.Errorf("the order is wrong in\n%s", text)
	}
	for line := range strings.Lines(text) {
		if len(line) > 121 && !strings.HasPrefix(line, " ") {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	later := example()
	later.Rows[1].Figures[1] = 28
	later.Columns[0].Name = "new"
	again := write(t, file, nil, later)
	if want := strings.Replace(text, "27.00", "28.00", 1); sections(again) != sections(want) {
		t.Errorf("got\n%s\nwant\n%s", again, want)
	}
	checkImages(t, filepath.Dir(file))
	later.Columns[1].Chart = nil
	write(t, file, nil, later)
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "img/bench/*")); err != nil || len(left) > 0 {
		t.Errorf("%v are not shown any more, and were not removed (%v)", left, err)
	}
}

// TestFill: the text around a section stays, and a section must be there.
func TestFill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const page = "# Title\n\nBy hand.\n\n<!-- a: generated -->\n\nold\n\n<!-- end -->\n\nBetween.\n\n<!-- b: generated -->\n\nkept\n\n<!-- end -->\n\nLast.\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report.Fill(file, map[string]string{"a": "new\n\n"}); err != nil {
		t.Fatal(err)
	}
	if err := report.Fill(file, map[string]string{"c": "new\n\n"}); err == nil {
		t.Error("a section that is not there is no error")
	}
	text, err := os.ReadFile(file)
	if want := strings.Replace(page, "old", "new", 1); err != nil || string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func write(t *testing.T, file string, order []string, tables ...report.Table) string {
	t.Helper()
	r := report.New(io.Discard, "bench -only "+report.Part)
	for _, table := range tables {
		if err := r.Add(table); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Write(file, order); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sections returns the text without the lines about the machine, whose load changes.
func sections(text string) (rest string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Measured by") {
			rest += line
		}
	}
	return rest
}

// checkImages: both images are XML, have the title and the figures, and differ in their colours.
func checkImages(t *testing.T, dir string) {
	t.Helper()
	var images [2]string
	for i, theme := range []string{"light", "dark"} {
		text, err := os.ReadFile(filepath.Join(dir, "img/bench/whole-"+theme+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		images[i] = string(text)
		for d := xml.NewDecoder(strings.NewReader(images[i])); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", theme, err)
			}
		}
		for _, part := range []string{"<title>CPU of &lt;a&gt; task&#39;s program</title>", ">28.00</text>", ">ingest</text>", ">dynamic</text>"} {
			if !strings.Contains(images[i], part) {
				t.Errorf("%s: there is no %s", theme, part)
			}
		}
		if strings.Contains(images[i], ">filter</text>") {
			t.Errorf("%s: there is a group without a figure", theme)
		}
	}
	if images[0] == images[1] {
		t.Error("both images are the same")
	}
}
