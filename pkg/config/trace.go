package config

import (
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// placeOf returns the place in the file of a character of a scalar's value, counted from 0 in code points; that of the scalar if it
// cannot be told.
func (n Node) placeOf(index int) place {
	if n.doc == nil || n.yaml == nil || n.yaml.Kind != yaml.ScalarNode {
		return n.at
	}
	places := trace(n.doc, n.yaml)
	if len(places) == 0 {
		return n.at
	}
	return places[min(max(index, 0), len(places)-1)]
}

// trace returns the place in the file of each character of a scalar's value, and of its end. It reads the scalar once more, by the
// rules of its style, and compares with the value that the library read: where they part it gives up and returns nil.
func trace(doc *document, y *yaml.Node) []place {
	t := &tracer{doc: doc, value: y.Value, line: y.Line}
	t.offset = t.byteOffset(y.Line, y.Column)
	t.column = y.Column
	t.skipProperties()
	ok := false
	switch {
	case y.Style&yaml.LiteralStyle != 0, y.Style&yaml.FoldedStyle != 0:
		return t.block(y.Style&yaml.FoldedStyle != 0)
	case y.Style&yaml.DoubleQuotedStyle != 0:
		ok = t.accept('"') && t.flow('"')
	case y.Style&yaml.SingleQuotedStyle != 0:
		ok = t.accept('\'') && t.flow('\'')
	default:
		ok = t.flow(0)
	}
	if !ok {
		return nil
	}
	return append(t.places, t.end())
}

// tracer walks through the file and through a scalar's value at the same time.
type tracer struct {
	doc          *document
	offset       int // in doc.text
	line, column int // of offset
	value        string
	next         int // in value
	places       []place
}

func (t *tracer) byteOffset(line, column int) int {
	if line < 1 || line > len(t.doc.lines) {
		return len(t.doc.text)
	}
	offset := t.doc.lines[line-1]
	for ; column > 1 && offset < len(t.doc.text); column-- {
		_, size := utf8.DecodeRuneInString(t.doc.text[offset:])
		offset += size
	}
	return offset
}

// peek returns the next character of the file, 0 at its end. A carriage return before a newline is skipped.
func (t *tracer) peek() rune {
	if strings.HasPrefix(t.doc.text[t.offset:], "\r\n") {
		t.offset++
	}
	if t.offset >= len(t.doc.text) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(t.doc.text[t.offset:])
	return r
}

func (t *tracer) advance() {
	r := t.peek()
	t.column++
	if r == '\n' {
		t.line, t.column = t.line+1, 1
	}
	if t.offset < len(t.doc.text) {
		_, size := utf8.DecodeRuneInString(t.doc.text[t.offset:])
		t.offset += size
	}
}

func (t *tracer) accept(r rune) bool {
	if t.peek() != r {
		return false
	}
	t.advance()
	return true
}

func (t *tracer) here() place { return place{t.line, t.column} }

// end is the place behind the last character.
func (t *tracer) end() place {
	if len(t.places) == 0 {
		return t.here()
	}
	last := t.places[len(t.places)-1]
	return place{last.line, last.column + 1}
}

// emit takes the next character of the value, which must be r, and notes its place.
func (t *tracer) emit(r rune, at place) bool {
	want, size := utf8.DecodeRuneInString(t.value[t.next:])
	if size == 0 || want != r {
		return false
	}
	t.next += size
	t.places = append(t.places, at)
	return true
}

// skipProperties goes to where the scalar itself begins, behind its anchor and tag.
func (t *tracer) skipProperties() {
	inProperty := false
	for {
		switch r := t.peek(); {
		case r == 0:
			return
		case r == ' ' || r == '\t' || r == '\n':
			inProperty = false
		case inProperty:
		case r == '&' || r == '!':
			inProperty = true
		case r == '#':
			for r := t.peek(); r != '\n' && r != 0; r = t.peek() {
				t.advance()
			}
			continue
		default:
			return
		}
		t.advance()
	}
}

// flow follows a plain or quoted scalar, which may go over several lines: white space around one line break is a space, around
// several one newline less.
func (t *tracer) flow(quote rune) bool {
	for quote != 0 || t.next < len(t.value) {
		at := t.here()
		r := t.peek()
		var ok bool
		switch {
		case r == 0:
			return false
		case r == ' ' || r == '\t' || r == '\n':
			ok = t.space(false)
		case r == quote && quote == '\'':
			t.advance()
			if t.peek() != '\'' {
				return t.next == len(t.value)
			}
			t.advance()
			ok = t.emit('\'', at)
		case r == quote:
			return t.next == len(t.value)
		case r == '\\' && quote == '"':
			ok = t.escape(at)
		default:
			t.advance()
			ok = t.emit(r, at)
		}
		if !ok {
			return false
		}
	}
	return true
}

// space follows white space up to the next character. joined: an escaped line break came before.
func (t *tracer) space(joined bool) bool {
	start := t.here()
	breaks := 0
	var blanks []rune
	for r := t.peek(); r == ' ' || r == '\t' || r == '\n'; r = t.peek() {
		if r == '\n' {
			breaks++
		}
		blanks = append(blanks, r)
		t.advance()
	}
	if joined {
		breaks++
	}
	switch {
	case breaks == 0:
		for i, r := range blanks {
			if !t.emit(r, place{start.line, start.column + i}) {
				return false
			}
		}
	case breaks == 1 && !joined:
		return t.emit(' ', start)
	}
	for range breaks - 1 {
		if !t.emit('\n', start) {
			return false
		}
	}
	return true
}

// escape follows a backslash and what belongs to it. The value itself says which character it stands for.
func (t *tracer) escape(at place) bool {
	t.advance()
	r := t.peek()
	t.advance()
	digits := 0
	switch r {
	case '\n':
		return t.space(true)
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	for range digits {
		t.advance()
	}
	want, size := utf8.DecodeRuneInString(t.value[t.next:])
	return size > 0 && t.emit(want, at)
}

// block follows a literal or folded block. How far it is indented is not known if the header says so by a number, so all
// possibilities are tried until one agrees with the value.
func (t *tracer) block(folded bool) []place {
	first := t.line + 1
	lead := 0
	for l := first; l <= len(t.doc.lines); l++ {
		if text := t.doc.line(l); strings.Trim(text, " ") != "" {
			lead = len(text) - len(strings.TrimLeft(text, " "))
			break
		}
	}
	for indent := lead; indent >= 0; indent-- {
		t.next, t.places = 0, nil
		if t.blockLines(first, indent, folded) {
			return append(t.places, t.end())
		}
	}
	return nil
}

// blockLines does what the library does with the lines of a block, see yaml_parser_scan_block_scalar there.
func (t *tracer) blockLines(line, indent int, folded bool) bool {
	var pending []place // line breaks not yet in the value
	started, afterBlank := false, false
	for ; line <= len(t.doc.lines) && t.next < len(t.value); line++ {
		text := t.doc.line(line)
		lead := len(text) - len(strings.TrimLeft(text, " "))
		if lead >= indent && len(text) > indent {
			blank := text[indent] == ' ' || text[indent] == '\t'
			if !t.breaks(pending, folded && started && !afterBlank && !blank) || !t.lineOf(text[indent:], line, indent) {
				return false
			}
			pending, started, afterBlank = nil, true, blank
		} else if lead < len(text) {
			break // less indented: the block is over
		}
		pending = append(pending, place{line, utf8.RuneCountInString(text) + 1})
	}
	for _, at := range pending {
		if t.next < len(t.value) && !t.emit('\n', at) {
			return false
		}
	}
	return t.next == len(t.value)
}

// breaks notes line breaks between two lines; folded, one is a space and several are one less.
func (t *tracer) breaks(pending []place, folded bool) bool {
	if folded && len(pending) == 1 {
		return t.emit(' ', pending[0])
	}
	if folded && len(pending) > 1 {
		pending = pending[1:]
	}
	for _, at := range pending {
		if !t.emit('\n', at) {
			return false
		}
	}
	return true
}

func (t *tracer) lineOf(text string, line, indent int) bool {
	column := indent + 1
	for _, r := range text {
		if !t.emit(r, place{line, column}) {
			return false
		}
		column++
	}
	return true
}
