package rawjson

import (
	"iter"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is the text of one JSON value that [Check] or [Scan] accepted, without white space around
// it. The empty Value means "absent". Its methods never fail or panic on such a text; their results
// for other texts are undefined.
type Value string

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values; Absent is the kind of the empty Value.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Trim returns a checked text as a Value.
func Trim(src string) Value {
	src = src[skipSpace(src, 0):]
	for src != "" && skipSpace(src, len(src)-1) == len(src) {
		src = src[:len(src)-1]
	}
	return Value(src)
}

// Kind returns the type of v, which its first character determines.
func (v Value) Kind() Kind {
	if v == "" {
		return Absent
	}
	switch v[0] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	}
	return Number
}

// Get returns the value that the object v has under key, or "" if v has no such key or is no
// object.
func (v Value) Get(key string) Value { return Closed(Member(string(v), key)) }

// Path follows keys through nested objects. It returns "" where one is missing.
func (v Value) Path(keys ...string) Value {
	for _, key := range keys {
		if v = v.Get(key); v == "" {
			break
		}
	}
	return v
}

// Fields yields the keys (unescaped) and values of the object v in the order of the text; nothing
// if v is no object.
func (v Value) Fields() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		c := Members(string(v))
		for quoted, open, ok := c.Next(); ok; quoted, open, ok = c.Next() {
			if !yield(Value(quoted).Str(), c.value(open)) {
				return
			}
		}
	}
}

// Elems yields the elements of the array v; nothing if v is no array.
func (v Value) Elems() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		s := string(v)
		if v.Kind() != Array {
			return
		}
		for i := skipSpace(s, 1); i < len(s) && s[i] != ']'; {
			end := skip(s, i)
			if end == i || !yield(Value(s[i:end])) {
				return
			}
			if i = skipSpace(s, end); i < len(s) && s[i] == ',' {
				i = skipSpace(s, i+1)
			}
		}
	}
}

// Str returns the text of the string v without quotes and escapes, or "" if v is no string. Without
// escapes nothing is copied. A lone surrogate becomes U+FFFD, as in encoding/json.
func (v Value) Str() string {
	if v.Kind() != String || len(v) < 2 {
		return ""
	}
	s := string(v[1 : len(v)-1])
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return unescape(s)
}

// IsTrue reports whether v is the literal true.
func (v Value) IsTrue() bool { return v == "true" }

// IsNull reports whether v is the literal null.
func (v Value) IsNull() bool { return v == "null" }

func unescape(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, n := unicodeEscape(s[i+1:])
			b.WriteRune(r)
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unicodeEscape decodes the text behind `\u`, including the second half of a surrogate pair, and
// returns the number of bytes that it took.
func unicodeEscape(s string) (r rune, n int) {
	r = hex4(s)
	if !utf16.IsSurrogate(r) {
		return r, min(4, len(s))
	}
	if len(s) >= 10 && s[4] == '\\' && s[5] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(s[6:])); pair != utf8.RuneError {
			return pair, 10
		}
	}
	return utf8.RuneError, min(4, len(s))
}

func hex4(s string) (r rune) {
	for i := 0; i < 4 && i < len(s); i++ {
		r = r<<4 | rune(max(0, hexDigit(s[i])))
	}
	return r
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
