package rawjson

// Selection is a set of paths. It copies from a JSON text the members on these paths and no others.
// It is safe for concurrent use after the last Add.
//
// A path is a list of keys. If it reaches an array, it continues in every element.
type Selection struct{ root node }

// NewSelection returns a Selection without paths, which keeps no member.
func NewSelection() *Selection { return &Selection{root: node{id: -1}} }

// Add adds a path, which must have at least one key. The value at its end is kept as a whole.
func (s *Selection) Add(path ...string) { s.root.at(path).id = 0 }

// Append appends the object at the begin of a checked text, without the members that are on no
// path. The members keep their order and the text of their values. An object on the way to the end
// of a path is kept, even if it becomes empty; an array on the way keeps all elements; any other
// value on the way is kept.
func (s *Selection) Append(b []byte, src string) []byte {
	b, _, _ = s.root.keep(b, src, skipSpace(src, 0))
	return b
}

// keep appends the value at an offset. It returns the offset to continue at, and the number of
// objects that are open there: nothing else in them is wanted, so their end was not searched.
func (n *node) keep(b []byte, src string, i int) (to []byte, at, open int) {
	if n.id < 0 && i < len(src) {
		switch src[i] {
		case '{':
			return n.keepMembers(b, src, i+1)
		case '[':
			b, i = n.keepElements(b, src, i+1)
			return b, i, 0
		}
	}
	end := skip(src, i)
	return append(b, src[i:end]...), end, 0
}

// keepMembers appends the wanted members of the object whose first member is at an offset.
func (n *node) keepMembers(b []byte, src string, i int) (to []byte, at, open int) {
	b = append(b, '{')
	for left := len(n.children); left > 0; {
		for i < len(src) && (src[i] <= ' ' || src[i] == ',') {
			i++
		}
		if i >= len(src) || src[i] != '"' { // the end of the object
			return append(b, '}'), min(i+1, len(src)), 0
		}
		quoted := src[i:skipString(src, i+1)]
		for i += len(quoted); i < len(src) && (src[i] <= ' ' || src[i] == ':'); i++ {
		}
		member := n.quoted(quoted)
		if member == nil {
			i = skip(src, i)
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(b, quoted...), ':')
		b, i, open = member.keep(b, src, i)
		if left--; left > 0 && open > 0 {
			i, open = Leave(src, i, open), 0
		}
	}
	return append(b, '}'), i, open + 1
}

// keepElements appends the array whose first element is at an offset, and returns the offset behind
// it.
func (n *node) keepElements(b []byte, src string, i int) (to []byte, at int) {
	b = append(b, '[')
	for i = skipSpace(src, i); i < len(src) && src[i] != ']'; i = skipSpace(src, i) {
		if src[i] == ',' {
			b = append(b, ',')
			i = skipSpace(src, i+1)
		}
		open := 0
		if b, i, open = n.keep(b, src, i); open > 0 {
			i = Leave(src, i, open)
		}
	}
	return append(b, ']'), min(i+1, len(src))
}

// quoted returns the child of a quoted key, or nil.
func (n *node) quoted(key string) *node {
	for i := range n.children {
		if IsKey(key, n.children[i].key) {
			return n.children[i].to
		}
	}
	return nil
}
