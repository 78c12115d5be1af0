// Package report renders the tables of measurements: as text for a terminal, and as sections of a
// document with bar charts.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table has the result of a comparison.
type Table struct {
	Part    string // the measurement, as in -only
	Title   string
	Text    string   // for the document: a paragraph about the comparison
	Labels  []string // headings of the labels of the rows
	Columns []Column
	Rows    []Row
}

// Column describes one figure of all rows.
type Column struct {
	Name   string
	Format string // such as %.1f
	// Ratio: the figure is of this code, not of the machine. The document has only such columns,
	// the terminal has all.
	Ratio bool
	Chart *Chart // nil: none
}

// Chart describes the image of a column.
type Chart struct {
	Name  string // of its files
	Title string
}

// Row is a line of a table.
type Row struct {
	Labels  []string // an empty one is that of the row above
	Figures []float64
}

// None is the figure of a row that has none in a column.
func None() float64 { return math.NaN() }

// cell returns a figure as text.
func (t *Table) cell(r Row, column int) string {
	if math.IsNaN(r.Figures[column]) {
		return ""
	}
	return fmt.Sprintf(t.Columns[column].Format, r.Figures[column])
}

// text writes the table for a terminal.
func (t *Table) text(w io.Writer) error {
	lines := [][]string{slices.Clone(t.Labels)}
	for _, c := range t.Columns {
		lines[0] = append(lines[0], c.Name)
	}
	for _, r := range t.Rows {
		line := slices.Clone(r.Labels)
		for i := range t.Columns {
			line = append(line, t.cell(r, i))
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", t.Title)
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < len(t.Labels) {
				b.WriteString("  " + cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown returns the table for the document.
func (t *Table) markdown() string {
	var b strings.Builder
	columns := t.ratios()
	b.WriteString("|")
	for _, label := range t.Labels {
		fmt.Fprintf(&b, " %s |", label)
	}
	for _, i := range columns {
		fmt.Fprintf(&b, " %s |", t.Columns[i].Name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(t.Labels)) + strings.Repeat("--:|", len(columns)) + "\n")
	for _, r := range t.Rows {
		b.WriteString("|")
		for _, label := range r.Labels {
			fmt.Fprintf(&b, " %s |", strings.ReplaceAll(label, "|", `\|`))
		}
		for _, i := range columns {
			fmt.Fprintf(&b, " %s |", t.cell(r, i))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ratios returns the columns of the document.
func (t *Table) ratios() (columns []int) {
	for i, c := range t.Columns {
		if c.Ratio {
			columns = append(columns, i)
		}
	}
	return columns
}
