package expr

import (
	"strings"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// cursor steps through the fields of a JSON object. Unlike [rawjson.Value.Fields] it can stop and go on later, and it does not look
// for the end of a value before the next field is asked for: to find spec.nodeName, spec need not be read to its end first. The text
// was checked when the object was read; it may go on behind the object.
type cursor struct {
	text    string
	at      int  // 0: before the first field
	atValue bool // at is where the last field's value begins
	inner   int  // where a value inside of that value begins that was read already, so many objects deep; 0: none was
	depth   int
}

// next returns the next field: its key, still quoted, and the text from where its value begins. After the last one, and in a text
// that is no object, ok is false.
func (c *cursor) next() (quoted, open string, ok bool) {
	s, i := c.text, c.at
	switch {
	case i == 0:
		if s == "" || s[0] != '{' {
			return "", "", false
		}
		i = 1
	case c.atValue:
		if c.inner > i {
			i = rawjson.Leave(s, skip(s, c.inner), c.depth)
		} else {
			i = skip(s, i)
		}
		c.atValue, c.inner = false, 0
	}
	for i < len(s) && (s[i] <= ' ' || s[i] == ',') {
		i++
	}
	if c.at = i; i >= len(s) || s[i] != '"' {
		return "", "", false
	}
	end := skipString(s, i)
	quoted = s[i:end]
	for i = end; i < len(s) && (s[i] <= ' ' || s[i] == ':'); i++ {
	}
	c.at, c.atValue = i, true
	return quoted, s[i:], true
}

// closed cuts off what follows the value that an open text begins with.
func closed(open string) rawjson.Value { return rawjson.Value(open[:skip(open, 0)]) }

// isKey reports whether the quoted key is key.
func isKey(quoted, key string) bool {
	if len(quoted) == len(key)+2 {
		return quoted[1:len(quoted)-1] == key && strings.IndexByte(key, '\\') < 0
	}
	// An escape makes the text longer than the key.
	return len(quoted) > len(key)+2 && strings.IndexByte(quoted, '\\') >= 0 && rawjson.Value(quoted).Str() == key
}

// skip returns the offset behind the value that starts at i.
func skip(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	switch s[i] {
	case '"':
		return skipString(s, i)
	case '{', '[':
		return rawjson.Leave(s, i, 0)
	}
	for i < len(s) && s[i] > ' ' && s[i] != ',' && s[i] != '}' && s[i] != ']' {
		i++
	}
	return i
}

// skipString leaps from quote to quote, which the standard library finds with vector instructions.
func skipString(s string, i int) int {
	for i++; ; {
		n := strings.IndexByte(s[i:], '"')
		if n < 0 {
			return len(s)
		}
		i += n + 1
		if s[i-2] != '\\' || !escaped(s, i-1) {
			return i
		}
	}
}

// escaped reports whether an odd number of backslashes stands before offset i.
func escaped(s string, i int) bool {
	n := 0
	for i > n && s[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
