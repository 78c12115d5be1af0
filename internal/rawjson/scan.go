package rawjson

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of arrays and objects. The deepest built-in kinds of Kubernetes stay
// below 60.
const MaxDepth = 512

// ErrIncomplete reports that the text ends before the value does. More text may complete it.
var ErrIncomplete = errors.New("unexpected end of JSON")

// SyntaxError reports the position and the kind of a syntax error. It never quotes the text, which
// may be a Secret.
type SyntaxError struct {
	Offset int // in bytes, from the start of the text given to Scan or Check
	Reason string
}

const tooDeep = "nested too deep"

// TooDeep reports whether the only fault found is a nesting deeper than [MaxDepth].
func (e *SyntaxError) TooDeep() bool { return e.Reason == tooDeep }

// Error names the place and the reason.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// Check returns an error unless src is exactly one JSON value (RFC 8259), with optional white space
// around it, in valid UTF-8, without duplicate keys in an object (readers disagree about their
// meaning), and nested no deeper than [MaxDepth].
func Check(src string) error {
	s := checkers.Get().(*scanner)
	defer s.release()
	return s.check(src)
}

// check is Check with a scanner that has not checked another text.
func (s *scanner) check(src string) error {
	s.src = src
	end := s.value(0, 0, nil)
	if end < 0 {
		return s.err
	}
	if end = skipSpace(src, end); end != len(src) {
		return &SyntaxError{end, "text after the value"}
	}
	if s.wide&highs != 0 && !utf8.ValidString(src) {
		return &SyntaxError{0, "not UTF-8"}
	}
	return nil
}

// checkers holds scanners for Check, so that the check of a small text allocates nothing.
var checkers = sync.Pool{New: func() any { return &scanner{keys: keyStack{names: make([]string, 0, usualKeys)}} }}

// release makes a scanner available again. The names are parts of a text, which they would keep in
// memory.
func (s *scanner) release() {
	if names := s.keys.names; cap(names) == usualKeys {
		clear(names[:usualKeys])
		*s = scanner{keys: keyStack{names: names[:0]}}
		checkers.Put(s)
	}
}

// Scan checks the JSON value that starts at or after offset i (white space is skipped) and returns
// the offset behind it. It checks all that [Check] does except UTF-8. The error is [ErrIncomplete]
// or a *[SyntaxError].
func Scan(src string, i int) (end int, err error) {
	s := scanner{src: src}
	if end = s.value(i, 0, nil); end < 0 {
		return s.at, s.err
	}
	return end, nil
}

// scanner checks one value. Its methods get the offset to read at and return the offset behind the
// read part, or -1 after fail: a single result keeps the hot path in registers.
type scanner struct {
	src  string
	keys keyStack
	// found collects the wanted paths, see Finder.
	found []Span
	// memo is set by CheckBoth only.
	memo *memo
	// escaped is set by every string with an escape.
	escaped bool
	// the bytes of all strings or-ed: a high bit means that some text is not ASCII
	wide   uint64
	window window

	err error
	at  int
}

func (s *scanner) fail(i int, reason string) int {
	if s.err == nil {
		s.at, s.err = i, &SyntaxError{i, reason}
	}
	return -1
}

func (s *scanner) incomplete(i int) int {
	if s.err == nil {
		s.at, s.err = min(i, len(s.src)), ErrIncomplete
	}
	return -1
}

func (s *scanner) value(i, depth int, want *node) int {
	src := s.src
	if uint(i) < uint(len(src)) && src[i] <= ' ' {
		i = skipSpace(src, i)
	}
	if uint(i) >= uint(len(src)) {
		return s.incomplete(i)
	}
	switch class[src[i]] {
	case quote:
		return s.str(i)
	case brace:
		if s.memo != nil {
			return s.remembered(i, depth)
		}
		return s.object(i+1, depth+1, want)
	case bracket:
		if s.memo != nil {
			return s.remembered(i, depth)
		}
		return s.array(i+1, depth+1, want)
	case numeral:
		return s.number(i)
	case letter:
		return s.literal(i)
	}
	return s.fail(i, "expected a value")
}

// object checks an object behind its opening brace.
func (s *scanner) object(i, depth int, want *node) int {
	if depth > MaxDepth {
		return s.fail(i, tooDeep)
	}
	src := s.src
	i = skipSpace(src, i)
	if uint(i) < uint(len(src)) && src[i] == '}' {
		return i + 1
	}
	keys := s.keys.open()
	for {
		if uint(i) >= uint(len(src)) {
			return s.incomplete(i)
		}
		if src[i] != '"' {
			return s.fail(i, "expected a key")
		}
		s.escaped = false
		end := s.str(i)
		if end < 0 {
			return end
		}
		name := src[i+1 : end-1]
		if s.escaped {
			name = unescape(name)
		}
		if !s.keys.add(&keys, name) {
			return s.fail(i, "a key stands twice in one object")
		}
		if end = skipSpace(src, end); uint(end) >= uint(len(src)) {
			return s.incomplete(end)
		}
		if src[end] != ':' {
			return s.fail(end, "expected ':'")
		}
		if want == nil {
			end = s.value(end+1, depth, nil)
		} else {
			end = s.wanted(i, skipSpace(src, end+1), depth, want.child(name))
		}
		if end < 0 {
			return end
		}
		if uint(end) < uint(len(src)) && src[end] == ',' { // the usual case first
			i = skipSpace(src, end+1)
			continue
		}
		next, more := s.more(end, '}')
		if !more {
			s.keys.close(keys)
			return next
		}
		i = skipSpace(src, next)
	}
}

// wanted checks the value at i of the key at key, and records it if the Finder wants it.
func (s *scanner) wanted(key, i, depth int, want *node) int {
	if want == nil || want.id < 0 {
		return s.value(i, depth, want)
	}
	n := len(s.found)
	s.found = append(s.found, Span{ID: want.id, Key: key, Start: i})
	var end int
	if want.skip {
		end = s.extent(i)
	} else {
		end = s.value(i, depth, want)
	}
	s.found[n].End = end
	return end
}

// array checks an array behind its opening bracket.
func (s *scanner) array(i, depth int, want *node) int {
	if depth > MaxDepth {
		return s.fail(i, tooDeep)
	}
	src := s.src
	i = skipSpace(src, i)
	if uint(i) < uint(len(src)) && src[i] == ']' {
		return i + 1
	}
	for {
		end := s.value(i, depth, want)
		if end < 0 {
			return end
		}
		if uint(end) < uint(len(src)) && src[end] == ',' {
			i = end + 1
			continue
		}
		next, more := s.more(end, ']')
		if !more {
			return next
		}
		i = next
	}
}

// more reads the comma or the closing bracket after an element, and reports whether another element
// follows.
func (s *scanner) more(i int, closing byte) (next int, more bool) {
	i = skipSpace(s.src, i)
	if i >= len(s.src) {
		return s.incomplete(i), false
	}
	switch s.src[i] {
	case ',':
		return i + 1, true
	case closing:
		return i + 1, false
	}
	return s.fail(i, "expected ',' or '"+string(closing)+"'"), false
}

// extent returns the offset behind the value at i. Of an object or list it looks only at quotes,
// backslashes and brackets.
func (s *scanner) extent(i int) int {
	src := s.src
	if uint(i) >= uint(len(src)) {
		return s.incomplete(i)
	}
	if c := class[src[i]]; c != brace && c != bracket {
		return s.value(i, 0, nil)
	}
	end, found := leave(src, i, 0)
	if !found {
		return s.incomplete(len(src))
	}
	return end
}

func skipSpace(s string, i int) int {
	for uint(i) < uint(len(s)) && s[i] <= ' ' && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// keyStack holds the keys of all open objects.
type keyStack struct {
	names []string
}

// keySet is the part of a keyStack that belongs to one object.
type keySet struct {
	base int
	// seen is a small Bloom filter that avoids most comparisons.
	seen uint64
	// many replaces comparisons in an object with many keys, whose time would be quadratic.
	many map[string]struct{}
}

// usualKeys is the number of keys in open objects up to which a Check allocates nothing.
const usualKeys = 64

// manyKeys is the number of keys from which on an object gets a map.
const manyKeys = 64

func (k *keyStack) open() keySet { return keySet{base: len(k.names)} }

func (k *keyStack) close(s keySet) { k.names = k.names[:s.base] }

// add records a key and reports whether the object did not have it yet.
func (k *keyStack) add(s *keySet, name string) bool {
	if s.many != nil {
		n := len(s.many)
		s.many[name] = struct{}{}
		return len(s.many) > n
	}
	h := uint(len(name))
	if h > 0 {
		h |= uint(name[0])<<8 | uint(name[h-1])<<16 | uint(name[h/2])<<24
	}
	bit := uint64(1) << (uint64(h) * 0x9E3779B97F4A7C15 >> 58)
	if s.seen&bit != 0 {
		for _, other := range k.names[s.base:] {
			if other == name {
				return false
			}
		}
	}
	s.seen |= bit
	k.names = append(k.names, name)
	if len(k.names)-s.base == manyKeys {
		s.many = make(map[string]struct{}, 4*manyKeys)
		for _, other := range k.names[s.base:] {
			s.many[other] = struct{}{}
		}
	}
	return true
}
