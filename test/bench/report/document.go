package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// Report collects the tables of one run.
type Report struct {
	Out     io.Writer // gets each table at once
	Command string    // repeats the run; Part stands for the measurement
	before  string    // the load at the start
	tables  []Table
}

// New returns an empty report.
func New(out io.Writer, command string) *Report {
	return &Report{Out: out, Command: command, before: load()}
}

// Add prints a table, and keeps it for the document.
func (r *Report) Add(t Table) error {
	r.tables = append(r.tables, t)
	return t.text(r.Out)
}

// introduction is the beginning of the document.
const introduction = `# Benchmarks

<!-- Written by go -C test/bench run . -write ../../docs/BENCHMARKS.md -->

` + "`make bench`" + ` measures the router beside programs that do the same work, and writes this document. All figures are
ratios: the contenders take turns on the same machine, so that its speed and its load affect each of them. A run with
` + "`-only`" + ` replaces only the sections of its parts; each section says how it was measured.

`

// end is behind each section.
const end = "<!-- end -->"

// Part is the placeholder of a command for the name of a part.
const Part = "PART"

// Write replaces the sections of the measured parts in the document, and draws their charts. It
// keeps the other sections. Those of order come first. Without a document it does nothing.
func (r *Report) Write(document string, order []string) error {
	if document == "" {
		return nil
	}
	old, err := os.ReadFile(document)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sections, names := sectionsOf(string(old))
	after := load()
	for _, t := range r.tables {
		if section := r.section(t.Part, after); section != "" {
			sections[t.Part] = section
		}
		names = append(names, t.Part)
	}
	order = slices.Concat(order, names)
	var b strings.Builder
	b.WriteString(introduction)
	for _, part := range order {
		if sections[part] != "" {
			fmt.Fprintf(&b, "<!-- %s: generated -->\n\n%s"+end+"\n\n", part, sections[part])
			delete(sections, part)
		}
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if err := os.WriteFile(document, []byte(text), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	return r.draw(filepath.Dir(document), text)
}

// Fill replaces sections of a document whose other text is written by hand. Each must be there.
func Fill(document string, sections map[string]string) error {
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text := string(old)
	for part, section := range sections {
		head := fmt.Sprintf("<!-- %s: generated -->\n\n", part)
		before, rest, found := strings.Cut(text, head)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return fmt.Errorf("%s: there is no section %s", document, part)
		}
		text = before + head + section + end + after
	}
	return os.WriteFile(document, []byte(text), 0o644) //nolint:gosec // a document
}

// sectionsOf returns the sections of a document by their parts, and these in their order.
func sectionsOf(text string) (sections map[string]string, parts []string) {
	sections = map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)<!-- ([a-z]+): generated -->\n\n(.*?)`+end).FindAllStringSubmatch(text, -1) {
		sections[m[1]] = m[2]
		parts = append(parts, m[1])
	}
	return sections, parts
}

// section returns the section of a part; empty if it was not measured, or has no ratios.
func (r *Report) section(part, after string) string {
	var b strings.Builder
	for _, t := range r.tables {
		if t.Part != part || len(t.ratios()) == 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n", t.Title)
		if t.Text != "" {
			b.WriteString(Wrap(t.Text) + "\n\n")
		}
		for _, c := range t.Columns {
			if c.Chart != nil {
				fmt.Fprintf(&b, "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"%s\">\n  <img alt=\"%s\" src=\"%s\">\n</picture>\n\n",
					c.Chart.file("dark"), escape(c.Chart.Title), c.Chart.file("light"))
			}
		}
		b.WriteString(t.markdown() + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + Wrap(fmt.Sprintf("Measured by `%s`: %d cores, %s, load %s before and %s after the run.",
		strings.ReplaceAll(r.Command, Part, part), runtime.NumCPU(), runtime.Version(), r.before, after)) + "\n\n"
}

// images is the folder of the charts, beside the document.
const images = "img/bench"

// draw writes the charts of all tables in both themes, and removes those that the document does not
// show any more.
func (r *Report) draw(dir, document string) error {
	if err := os.MkdirAll(filepath.Join(dir, images), 0o755); err != nil { //nolint:gosec // of documents
		return err
	}
	for _, t := range r.tables {
		for i, c := range t.Columns {
			if c.Chart == nil {
				continue
			}
			for _, colours := range themes() {
				if err := os.WriteFile(filepath.Join(dir, c.Chart.file(colours.name)), []byte(t.svg(i, colours)), 0o644); err != nil { //nolint:gosec // a document
					return err
				}
			}
		}
	}
	drawn, err := filepath.Glob(filepath.Join(dir, images, "*.svg"))
	for _, file := range drawn {
		if !strings.Contains(document, images+"/"+filepath.Base(file)) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// file returns the file of the chart, beside the document.
func (c *Chart) file(theme string) string { return images + "/" + c.Name + "-" + theme + ".svg" }

// load returns the load of the machine in the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

// Wrap breaks a paragraph into lines of at most 120 columns.
func Wrap(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > 120:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
