package listing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// longestEvent is the longest type of a change. Its column never becomes wider.
const longestEvent = "MODIFIED"

// Stream prints objects and their changes in the formats of `kubectl get --watch`: each one as it
// is, and not as part of a list.
type Stream struct {
	printer *Printer
	out     io.Writer
	events  bool
	rows    [][]string // of a table, until Flush
	widths  []int      // of the columns so far
}

// NewStream makes a Stream. With events, a row or a name begins with the type of the change, and
// the other formats print an object with the fields type and object.
func NewStream(out io.Writer, format string, events bool) (*Stream, error) {
	p, err := New(out, format, true)
	return &Stream{printer: p, out: out, events: events}, err
}

// Print prints an object after a change, or keeps its row for [Stream.Flush].
func (s *Stream) Print(event string, item json.RawMessage) error {
	switch s.printer.format {
	case table, wide:
		s.printer.n++
		s.row(event, item)
		return nil
	case asName:
		if s.events {
			if _, err := io.WriteString(s.out, event+" "); err != nil {
				return err
			}
		}
		return s.printer.Print(item)
	}
	if s.events {
		text, err := json.Marshal(map[string]any{"type": event, "object": item})
		if err != nil {
			return fmt.Errorf("an object of the answer is no JSON: %w", err)
		}
		item = text
	}
	if s.printer.path != nil {
		return s.template(item)
	}
	return s.printer.Print(item)
}

// Len returns the number of printed objects.
func (s *Stream) Len() int { return s.printer.n }

// row adds a row to those that wait, and the header to the first one.
func (s *Stream) row(event string, item json.RawMessage) {
	var o object
	_ = json.Unmarshal(item, &o) // fields of other types are left out
	header, cells := s.printer.cells(&o)
	if s.events {
		header, cells = append([]string{"EVENT"}, header...), append([]string{event}, cells...)
	}
	if s.printer.n == 1 {
		s.rows, s.widths = append(s.rows, header), make([]int, len(header))
		if s.events {
			s.widths[0] = len(longestEvent)
		}
	}
	s.rows = append(s.rows, clean(cells))
}

// Flush prints the rows. A column keeps the width that it had in earlier rows.
func (s *Stream) Flush() error {
	for _, row := range s.rows {
		for i, cell := range row {
			s.widths[i] = max(s.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range s.rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", s.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	s.rows = s.rows[:0]
	_, err := io.WriteString(s.out, b.String())
	return err
}

// template fills in the JSONPath template with one object, on a line of its own.
func (s *Stream) template(item json.RawMessage) error {
	s.printer.n++
	var value any
	if err := utiljson.Unmarshal(item, &value); err != nil {
		return fmt.Errorf("an object of the answer is no JSON: %w", err)
	}
	var b bytes.Buffer
	if err := s.printer.path.Execute(&b, value); err != nil {
		return fmt.Errorf("the JSONPath template does not fit an object: %w", err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err := s.out.Write(b.Bytes())
	return err
}

// clean returns the cells of a row as they are printed: a dash for an empty one.
func clean(cells []string) []string {
	for i, cell := range cells {
		if cells[i] = printable.Line(cell); cell == "" {
			cells[i] = "-"
		}
	}
	return cells
}
