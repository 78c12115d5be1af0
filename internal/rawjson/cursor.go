package rawjson

import "strings"

// Cursor steps through the members of a checked JSON object. Unlike [Value.Fields] it can stop and
// go on later, and it does not look for the end of a value before the next member is asked for: to
// find spec.nodeName, spec need not be read to its end first.
type Cursor struct {
	text    string
	at      int  // 0: before the first member
	atValue bool // at is where the last member's value begins
	inner   int  // see Passed; 0: nothing was passed
	depth   int
}

// Members returns a cursor before the first member of the object that the text begins with.
func Members(text string) Cursor { return Cursor{text: text} }

// Next returns the next member: its key, still quoted, and the text from where its value begins.
// After the last one, and in a text that begins with no object, ok is false.
func (c *Cursor) Next() (quoted, open string, ok bool) {
	s, i := c.text, c.at
	switch {
	case i == 0:
		if s == "" || s[0] != '{' {
			return "", "", false
		}
		i = 1
	case c.atValue:
		if c.inner > i {
			i = Leave(s, skip(s, c.inner), c.depth)
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
	end := skipString(s, i+1)
	quoted = s[i:end]
	for i = end; i < len(s) && (s[i] <= ' ' || s[i] == ':'); i++ {
	}
	c.at, c.atValue = i, true
	return quoted, s[i:], true
}

// Offset returns how many bytes of the text were read.
func (c *Cursor) Offset() int { return c.at }

// Passed notes that a value was read that begins at the offset inner, so many objects deep in the
// value at the offset at. If that is the value of the last member, its end is found faster from
// there.
func (c *Cursor) Passed(at, inner, depth int) {
	if c.atValue && c.at == at {
		c.inner, c.depth = inner, depth
	}
}

// value returns the whole value of the last member, which is not skipped once more.
func (c *Cursor) value(open string) Value {
	v := Closed(open)
	c.at, c.atValue = c.at+len(v), false
	return v
}

// Closed cuts off what follows the value that a text begins with.
func Closed(open string) Value { return Value(open[:skip(open, 0)]) }

// Member returns the text from where the value of the key begins in the object that open begins
// with, "" if there is none.
func Member(open, key string) string {
	c := Members(open)
	for {
		quoted, value, ok := c.Next()
		if !ok || IsKey(quoted, key) {
			return value
		}
	}
}

// IsKey reports whether a quoted key is key.
func IsKey(quoted, key string) bool {
	if len(quoted) == len(key)+2 {
		// A backslash in the key would be an escape in the quoted one.
		return quoted[1:len(quoted)-1] == key && strings.IndexByte(key, '\\') < 0
	}
	// An escape makes the text longer than the key.
	return len(quoted) > len(key)+2 && strings.IndexByte(quoted, '\\') >= 0 && Value(quoted).Str() == key
}

// skip returns the offset behind the checked value that starts at i.
func skip(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	switch s[i] {
	case '"':
		return skipString(s, i+1)
	case '{', '[':
		return Leave(s, i, 0)
	}
	for i < len(s) && s[i] > ' ' && s[i] != ',' && s[i] != '}' && s[i] != ']' {
		i++
	}
	return i
}

// skipString returns the offset behind the string that i stands in. It leaps from quote to quote,
// which the standard library finds with vector instructions.
func skipString(s string, i int) int {
	for {
		n := strings.IndexByte(s[i:], '"')
		if n < 0 {
			return len(s)
		}
		i += n + 1
		slashes := 0
		for s[i-2-slashes] == '\\' { // a quote stands before all of them
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}
