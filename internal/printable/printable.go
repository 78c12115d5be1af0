// Package printable makes untrusted text safe for terminals and logs: names of objects and messages
// of guests may contain escape sequences, newlines that forge a line, and characters that reorder
// the text beside them.
//
// A character that does not print is replaced by its JSON escape (\u001b), so text within JSON
// keeps its meaning.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text as one line.
func Line(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !prints(r) }) < 0 {
		return text
	}
	return string(appendTo(nil, text, ""))
}

// Writer returns a writer that escapes all such characters except newlines and tabs. Each Write
// must contain whole characters.
func Writer(to io.Writer) io.Writer { return &Escaper{to} }

// Escaper is the writer of [Writer].
type Escaper struct{ to io.Writer }

// Unwrap returns the underlying writer.
func (e *Escaper) Unwrap() io.Writer { return e.to }

// Write implements [io.Writer].
func (e *Escaper) Write(p []byte) (int, error) {
	const kept = "\n\t"
	text := string(p)
	if strings.IndexFunc(text, func(r rune) bool { return !prints(r) && !strings.ContainsRune(kept, r) }) < 0 {
		return e.to.Write(p)
	}
	if _, err := e.to.Write(appendTo(nil, text, kept)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// prints reports whether a character is visible and has no other effect. Invalid UTF-8 is not.
func prints(r rune) bool { return r != utf8.RuneError && strconv.IsGraphic(r) }

// appendTo appends text, with escapes of characters that do not print and are not in kept.
func appendTo(b []byte, text, kept string) []byte {
	for _, r := range text {
		switch {
		case prints(r) || strings.ContainsRune(kept, r):
			b = utf8.AppendRune(b, r)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

const ellipsis = "…"

// Clean returns the beginning of an untrusted text: on one line, in UTF-8, and of at most most
// bytes, including an ellipsis. Characters that do not print are replaced by U+FFFD. The result is
// a copy.
func Clean[T ~string | ~[]byte](text T, most int) string { return clean(string(text), most, "") }

// Text is [Clean] for a text of several lines: newlines and tabs stay.
func Text[T ~string | ~[]byte](text T, most int) string { return clean(string(text), most, "\n\t") }

func clean(text string, most int, kept string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case strings.ContainsRune(kept, r):
		case unicode.IsSpace(r):
			r = ' '
		case !prints(r):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > most {
			return cut(b.String(), most)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut returns the beginning of text with an ellipsis behind it.
func cut(text string, most int) string {
	n := min(len(text), most-len(ellipsis))
	if n < 0 {
		return ""
	}
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + ellipsis
}

// IsPlain reports whether [Clean] would leave text unchanged, except for its length.
func IsPlain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r != ' ' && (unicode.IsSpace(r) || !prints(r)) }) < 0
}
