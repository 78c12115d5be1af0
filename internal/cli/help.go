package cli

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// The layout of help, in columns.
const (
	helpWidth = 100
	maxName   = 30 // a longer name stands on a line of its own
)

// help prints the help of a command.
func (p *Program) help(w io.Writer, name string, c *Command) {
	fmt.Fprintf(w, "%s\n", c.usage(name))
	for _, text := range append([]string{c.Summary + "."}, paragraphs(c.Description)...) {
		fmt.Fprintf(w, "\n%s\n", wrap(text, 0))
	}
	if len(c.Examples) > 0 {
		fmt.Fprintln(w, "\nExamples:")
	}
	for _, e := range c.Examples {
		fmt.Fprintf(w, "  %s\n      %s\n", e.Line, wrap(e.Text, 6))
	}
	if len(c.Commands) > 0 {
		var rows [][2]string
		for i := range c.Commands {
			rows = append(rows, [2]string{c.Commands[i].Name, c.Commands[i].Summary})
		}
		fmt.Fprintln(w, "\nCommands:")
		table(w, rows)
		fmt.Fprintf(w, "\n%s COMMAND prints the help of a command.\n", pointer(p.Name, name))
	}
	if c.Setup != nil {
		flags := newFlags()
		c.Setup(flags)
		flags.print(w)
	}
}

// usage returns the line that shows the form of a command.
func (c *Command) usage(name string) string {
	line := "Usage: " + name
	switch {
	case c.Setup == nil:
		line += " COMMAND"
	case len(c.Commands) > 0:
		line += " [COMMAND]"
	}
	if c.Args != "" {
		line += " " + c.Args
	}
	return line + " [flags]"
}

func paragraphs(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSpace(text), "\n\n")
}

// print prints the flags, those of groups last.
func (f *Flags) print(w io.Writer) {
	var grouped []string
	for _, g := range f.groups {
		grouped = append(grouped, g.names...)
	}
	groups := []group{{title: "Flags"}}
	for _, name := range f.names() {
		if !slices.Contains(grouped, name) {
			groups[0].names = append(groups[0].names, name)
		}
	}
	for _, g := range append(groups, f.groups...) {
		if len(g.names) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", wrap(g.title, 0))
		var rows [][2]string
		for _, name := range g.names {
			rows = append(rows, row(f.Lookup(name)))
		}
		table(w, rows)
	}
}

// row is a flag in the list of flags.
func row(f *flag.Flag) [2]string {
	name, usage := unquote(f)
	if value := defaultOf(f); value != "" {
		usage += " (default " + value + ")"
	}
	return [2]string{strings.TrimSpace("-" + f.Name + " " + name), usage}
}

// table prints names and texts in two columns.
func table(w io.Writer, rows [][2]string) {
	width := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r[0]); n <= maxName {
			width = max(width, n)
		}
	}
	if width == 0 {
		width = 2 // all names stand on lines of their own
	}
	indent := width + 4
	for _, r := range rows {
		gap := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(r[0]))+2)
		if utf8.RuneCountInString(r[0]) > width {
			gap = "\n" + strings.Repeat(" ", indent)
		}
		fmt.Fprintf(w, "  %s%s%s\n", r[0], gap, wrap(r[1], indent))
	}
}

// wrap breaks text into lines; those after the first are indented.
func wrap(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
