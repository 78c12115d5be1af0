package rawjson

import (
	"math/bits"
	"unsafe"
)

// The classes of the bytes at the begin of a value.
const (
	other = iota
	quote
	brace
	bracket
	numeral
	letter
)

// class is a constant table.
var class = [256]uint8{
	'"': quote, '{': brace, '[': bracket, '-': numeral, '0': numeral, '1': numeral, '2': numeral, '3': numeral, '4': numeral,
	'5': numeral, '6': numeral, '7': numeral, '8': numeral, '9': numeral, 't': letter, 'f': letter, 'n': letter,
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns a word whose lowest set high bit marks the first byte of w that is a quote, a
// backslash or a control character; 0 if there is none. Bytes above the first may be marked
// wrongly.
func special(w uint64) uint64 {
	q, b := w^('"'*ones), w^('\\'*ones)
	return ((q-ones)&^q | (b-ones)&^b | (w-' '*ones)&^w) & highs
}

// word reads 8 bytes of s from offset i, the first one lowest. There must be that many.
func word(s string, i int) uint64 {
	b := (*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(s)), i))
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// str checks the string whose opening quote is at i.
func (s *scanner) str(i int) int {
	src := s.src
	wide := uint64(0)
	for i++; ; {
		if at, found, known := s.window.next(i); known {
			if i = at; !found {
				continue
			}
		} else if s.look(i) {
			continue
		} else if i+8 <= len(src) {
			w := word(src, i)
			wide |= w
			m := special(w)
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		} else if i >= len(src) {
			return s.incomplete(i)
		}
		switch c := src[i]; {
		case c == '"':
			s.wide |= wide
			return i + 1
		case c == '\\':
			s.escaped = true
			if i = s.escape(i); i < 0 {
				return i
			}
		case c < ' ':
			return s.fail(i, "control character in a string")
		default:
			wide |= uint64(c)
			i++
		}
	}
}

// escape checks the escape sequence at i.
func (s *scanner) escape(i int) int {
	if i+1 >= len(s.src) {
		return s.incomplete(i + 1)
	}
	switch s.src[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(s.src) {
				return s.incomplete(k)
			}
			if hexDigit(s.src[k]) < 0 {
				return s.fail(k, "expected four hex digits")
			}
		}
		return i + 6
	}
	return s.fail(i, "unknown escape")
}

func (s *scanner) number(i int) int {
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
	return i
}

func (s *scanner) badNumber(start, i int) int {
	if i >= len(s.src) {
		return s.incomplete(i)
	}
	return s.fail(start, "malformed number")
}

func (s *scanner) literal(i int) int {
	word := "true"
	switch s.src[i] {
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	}
	rest := s.src[i:]
	if len(rest) < len(word) && word[:len(rest)] == rest {
		return s.incomplete(len(s.src))
	}
	if len(rest) < len(word) || rest[:len(word)] != word {
		return s.fail(i, "expected a value")
	}
	return i + len(word)
}

func digits(s string, i int) (n int) {
	for i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '9' {
		n++
	}
	return n
}
