package yamlfile

import (
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Trace returns the position in the file of each character of a scalar's value, and of its end. It
// parses the scalar again by the rules of its style and compares the result with the library's
// value. If they differ, it returns nil.
func Trace(f *File, y *yaml.Node) []Place {
	t := &tracer{file: f, value: y.Value, line: y.Line}
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

// tracer walks through the file and the value of a scalar in parallel.
type tracer struct {
	file         *File
	offset       int // in file.text
	line, column int // of offset
	value        string
	next         int // in value
	places       []Place
}

func (t *tracer) byteOffset(line, column int) int {
	if line < 1 || line > len(t.file.lines) {
		return len(t.file.text)
	}
	offset := t.file.lines[line-1]
	for ; column > 1 && offset < len(t.file.text); column-- {
		_, size := utf8.DecodeRuneInString(t.file.text[offset:])
		offset += size
	}
	return offset
}

// peek returns the next character of the file, 0 at its end. It skips a carriage return before a
// newline.
func (t *tracer) peek() rune {
	if strings.HasPrefix(t.file.text[t.offset:], "\r\n") {
		t.offset++
	}
	if t.offset >= len(t.file.text) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(t.file.text[t.offset:])
	return r
}

func (t *tracer) advance() {
	r := t.peek()
	t.column++
	if r == '\n' {
		t.line, t.column = t.line+1, 1
	}
	if t.offset < len(t.file.text) {
		_, size := utf8.DecodeRuneInString(t.file.text[t.offset:])
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

func (t *tracer) here() Place { return Place{t.line, t.column} }

// end returns the position behind the last character.
func (t *tracer) end() Place {
	if len(t.places) == 0 {
		return t.here()
	}
	last := t.places[len(t.places)-1]
	return Place{last.Line, last.Column + 1}
}

// emit consumes the next character of the value, which must be r, and records its position.
func (t *tracer) emit(r rune, at Place) bool {
	want, size := utf8.DecodeRuneInString(t.value[t.next:])
	if size == 0 || want != r {
		return false
	}
	t.next += size
	t.places = append(t.places, at)
	return true
}

// skipProperties moves behind the anchor and tag of the scalar.
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

// flow follows a plain or quoted scalar, which may span several lines: white space around one line
// break is a space; around several it is one newline less.
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

// space follows white space up to the next character. joined: an escaped line break precedes it.
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
			if !t.emit(r, Place{start.Line, start.Column + i}) {
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

// escape follows an escape sequence. The value has the character that it represents.
func (t *tracer) escape(at Place) bool {
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

// block follows a literal or folded block. An explicit indentation in the header is not parsed;
// block tries all indentations until one agrees with the value.
func (t *tracer) block(folded bool) []Place {
	first := t.line + 1
	lead := 0
	for l := first; l <= len(t.file.lines); l++ {
		if text := t.file.Line(l); strings.Trim(text, " ") != "" {
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

// blockLines follows the lines of a block as the library's yaml_parser_scan_block_scalar does.
func (t *tracer) blockLines(line, indent int, folded bool) bool {
	var pending []Place // line breaks not yet in the value
	started, afterBlank := false, false
	for ; line <= len(t.file.lines) && t.next < len(t.value); line++ {
		text := t.file.Line(line)
		lead := len(text) - len(strings.TrimLeft(text, " "))
		if lead >= indent && len(text) > indent {
			blank := text[indent] == ' ' || text[indent] == '\t'
			if !t.breaks(pending, folded && started && !afterBlank && !blank) || !t.lineOf(text[indent:], line, indent) {
				return false
			}
			pending, started, afterBlank = nil, true, blank
		} else if lead < len(text) {
			break // less indented: the end of the block
		}
		pending = append(pending, Place{line, utf8.RuneCountInString(text) + 1})
	}
	for _, at := range pending {
		if t.next < len(t.value) && !t.emit('\n', at) {
			return false
		}
	}
	return t.next == len(t.value)
}

// breaks records the line breaks between two lines. In a folded block, one break is a space and
// several are one less.
func (t *tracer) breaks(pending []Place, folded bool) bool {
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
		if !t.emit(r, Place{line, column}) {
			return false
		}
		column++
	}
	return true
}
