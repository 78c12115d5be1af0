package rawjson

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest. The deepest built-in kinds of Kubernetes stay below 60.
const MaxDepth = 512

// ErrIncomplete says that the text ends before the value does. More text may complete it.
var ErrIncomplete = errors.New("unexpected end of JSON")

// SyntaxError says where a text is no JSON, and why. It never quotes the text: it may be a Secret.
type SyntaxError struct {
	Offset int // in bytes, from the start of the text given to Scan or Check
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// Check reports whether src is exactly one JSON value (RFC 8259), with optional white space around it, in valid UTF-8, without a
// key that an object has twice (readers disagree on which one counts), nested no deeper than [MaxDepth].
func Check(src string) error {
	end, err := Scan(src, 0)
	if err != nil {
		return err
	}
	if end = skipSpace(src, end); end != len(src) {
		return &SyntaxError{end, "text after the value"}
	}
	if !utf8.ValidString(src) {
		return &SyntaxError{0, "not UTF-8"}
	}
	return nil
}

// Scan checks the JSON value that starts at or after offset i (white space is skipped) and returns the offset behind it.
// It checks all that [Check] does except UTF-8. The error is [ErrIncomplete] or a *[SyntaxError].
func Scan(src string, i int) (end int, err error) {
	s := scanner{src: src}
	s.keys = s.room[:0]
	return s.value(i, 0)
}

// scanner checks one value. keys is a stack: the keys so far of every object that is still open.
type scanner struct {
	src  string
	keys []string
	room [64]string
}

func (s *scanner) value(i, depth int) (int, error) {
	i = skipSpace(s.src, i)
	if i >= len(s.src) {
		return i, ErrIncomplete
	}
	switch c := s.src[i]; {
	case c == '"':
		return s.str(i)
	case c == '{':
		return s.object(i+1, depth+1)
	case c == '[':
		return s.array(i+1, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	}
	return i, &SyntaxError{i, "expected a value"}
}

// object checks the rest of an object whose brace was read.
func (s *scanner) object(i, depth int) (int, error) {
	if depth > MaxDepth {
		return i, &SyntaxError{i, "nested too deep"}
	}
	base, seen := len(s.keys), uint64(0)
	if i = skipSpace(s.src, i); i < len(s.src) && s.src[i] == '}' {
		return i + 1, nil
	}
	for {
		i = skipSpace(s.src, i)
		if i >= len(s.src) {
			return i, ErrIncomplete
		}
		if s.src[i] != '"' {
			return i, &SyntaxError{i, "expected a key"}
		}
		end, err := s.str(i)
		if err != nil {
			return end, err
		}
		if !s.newKey(s.src[i:end], base, &seen) {
			return i, &SyntaxError{i, "a key stands twice in one object"}
		}
		if end = skipSpace(s.src, end); end >= len(s.src) {
			return end, ErrIncomplete
		}
		if s.src[end] != ':' {
			return end, &SyntaxError{end, "expected ':'"}
		}
		if i, err = s.value(end+1, depth); err != nil {
			return i, err
		}
		done, next, err := s.more(i, '}')
		if err != nil || done {
			s.keys = s.keys[:base]
			return next, err
		}
		i = next
	}
}

// newKey remembers a key (with its quotes) and reports whether the object did not have it yet. seen is a small Bloom filter over
// the object's keys that spares most comparisons.
func (s *scanner) newKey(quoted string, base int, seen *uint64) bool {
	key := Value(quoted).Str()
	h := uint(len(key))
	if h > 0 {
		h += uint(key[0])*5 + uint(key[len(key)-1])*11 + uint(key[len(key)/2])*17
	}
	bit := uint64(1) << (h % 64)
	if *seen&bit != 0 {
		for _, k := range s.keys[base:] {
			if k == key {
				return false
			}
		}
	}
	*seen |= bit
	s.keys = append(s.keys, key)
	return true
}

// array checks the rest of an array whose bracket was read.
func (s *scanner) array(i, depth int) (int, error) {
	if depth > MaxDepth {
		return i, &SyntaxError{i, "nested too deep"}
	}
	if i = skipSpace(s.src, i); i < len(s.src) && s.src[i] == ']' {
		return i + 1, nil
	}
	for {
		end, err := s.value(i, depth)
		if err != nil {
			return end, err
		}
		done, next, err := s.more(end, ']')
		if err != nil || done {
			return next, err
		}
		i = next
	}
}

// more reads the comma or the closing bracket after an element.
func (s *scanner) more(i int, closing byte) (done bool, next int, err error) {
	i = skipSpace(s.src, i)
	if i >= len(s.src) {
		return false, i, ErrIncomplete
	}
	switch s.src[i] {
	case ',':
		return false, i + 1, nil
	case closing:
		return true, i + 1, nil
	}
	return false, i, &SyntaxError{i, "expected ',' or '" + string(closing) + "'"}
}

// str checks the string whose opening quote is at i.
func (s *scanner) str(i int) (int, error) {
	src := s.src
	for i++; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			n, err := s.escape(i)
			if err != nil {
				return i, err
			}
			i += n - 1
		case c < ' ':
			return i, &SyntaxError{i, "control character in a string"}
		}
	}
	return i, ErrIncomplete
}

// escape returns the length of the escape sequence at i.
func (s *scanner) escape(i int) (int, error) {
	if i+1 >= len(s.src) {
		return 0, ErrIncomplete
	}
	switch s.src[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(s.src) {
				return 0, ErrIncomplete
			}
			if hexDigit(s.src[k]) < 0 {
				return 0, &SyntaxError{k, "expected four hex digits"}
			}
		}
		return 6, nil
	}
	return 0, &SyntaxError{i, "unknown escape"}
}

func (s *scanner) number(i int) (int, error) {
	src, start := s.src, i
	if src[i] == '-' {
		i++
	}
	zero := i < len(src) && src[i] == '0'
	n := digits(src, i)
	if n == 0 || zero && n > 1 {
		return s.badNumber(start, i)
	}
	i += n
	if i < len(src) && src[i] == '.' {
		if n = digits(src, i+1); n == 0 {
			return s.badNumber(start, i+1)
		}
		i += 1 + n
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if n = digits(src, i); n == 0 {
			return s.badNumber(start, i)
		}
		i += n
	}
	return i, nil
}

func (s *scanner) badNumber(start, i int) (int, error) {
	if i >= len(s.src) {
		return i, ErrIncomplete
	}
	return start, &SyntaxError{start, "malformed number"}
}

func (s *scanner) literal(i int, word string) (int, error) {
	rest := s.src[i:]
	if len(rest) < len(word) && word[:len(rest)] == rest {
		return len(s.src), ErrIncomplete
	}
	if len(rest) < len(word) || rest[:len(word)] != word {
		return i, &SyntaxError{i, "expected a value"}
	}
	return i + len(word), nil
}

func digits(s string, i int) (n int) {
	for i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '9' {
		n++
	}
	return n
}

func skipSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}
