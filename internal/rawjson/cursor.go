package rawjson

import "strings"

// Cursor steps through the members of a checked JSON object. Unlike [Value.Fields] it can stop and
// continue later. It searches the end of a value only when the next member is requested: a look at
// spec.nodeName does not read the whole of spec.
type Cursor struct {
	text    string
	at      int  // 0: before the first member
	atValue bool // at is the begin of the last member's value
	inner   int  // see Passed; 0: no inner value is known
	depth   int
}

// Members returns a cursor before the first member of the object at the begin of the text.
func Members(text string) Cursor { return Cursor{text: text} }

// Next returns the next member: its quoted key, and the text from the begin of its value. ok is
// false after the last member, and for a text that does not begin with an object.
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

// Offset returns the number of bytes read.
func (c *Cursor) Offset() int { return c.at }

// Passed reports that a value at the offset inner was read, which is depth objects deep in the
// value at the offset at. If that is the value of the last member, the search for its end continues
// there.
func (c *Cursor) Passed(at, inner, depth int) {
	if c.atValue && c.at == at {
		c.inner, c.depth = inner, depth
	}
}

// value returns the whole value of the last member. Next does not skip it again.
func (c *Cursor) value(open string) Value {
	v := Closed(open)
	c.at, c.atValue = c.at+len(v), false
	return v
}

// Closed returns the value at the begin of a text without the text behind it.
func Closed(open string) Value { return Value(open[:skip(open, 0)]) }

// Member returns the text from the begin of the key's value, in the object at the begin of open. It
// returns "" if there is no such key.
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

// skipString returns the offset behind the string that contains i. It jumps from quote to quote;
// the standard library finds them with vector instructions.
func skipString(s string, i int) int {
	for {
		n := strings.IndexByte(s[i:], '"')
		if n < 0 {
			return len(s)
		}
		i += n + 1
		slashes := 0
		for s[i-2-slashes] == '\\' { // a quote precedes all of them
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}
