package rawjson

import "slices"

// Finder checks texts like [Scan] and reports the positions of some paths in the same pass. It must
// be used by one goroutine at a time.
//
// A path is a list of keys. If it reaches an array, it continues in every element.
type Finder struct {
	root node
	scan scanner
}

// Span is the position of a member in the text: "key": value.
type Span struct {
	ID         int // id of the path
	Key        int // offset of the key's opening quote
	Start, End int // of the value
}

// node is one step of the wanted paths.
type node struct {
	id       int // -1: only paths below it are wanted
	skip     bool
	children []child
	others   *node // for keys without a child; nil: they are not wanted
}

type child struct {
	key string
	to  *node
}

// NewFinder returns a Finder without paths.
func NewFinder() *Finder { return &Finder{root: node{id: -1}} }

// Find makes later Scans report the path under id (0 or more). The path must have at least one key.
func (f *Finder) Find(id int, path ...string) { f.add(id, false, path) }

// Skip is like Find for a value that will not be read. Scan finds only its end, which is quick: it
// does not check an object or list, and reports no path below it.
func (f *Finder) Skip(id int, path ...string) { f.add(id, true, path) }

// SkipOthers is like Skip for each member of the object at the path whose key is neither in allowed
// nor on another wanted path.
func (f *Finder) SkipOthers(id int, allowed []string, path ...string) {
	f.root.at(path).others = &node{id: id, skip: true}
	for _, key := range allowed {
		f.root.at(append(path[:len(path):len(path)], key))
	}
}

func (f *Finder) add(id int, skip bool, path []string) {
	n := f.root.at(path)
	n.id, n.skip = id, skip
}

// at returns the node of a path below n, and makes it if needed.
func (n *node) at(path []string) *node {
	for _, key := range path {
		next := n.child(key)
		if next == nil || next == n.others {
			next = &node{id: -1}
			n.children = append(n.children, child{key, next})
		}
		n = next
	}
	return n
}

// Scan is like the function [Scan]. The spans are in the order of the text and valid until the next
// Scan.
func (f *Finder) Scan(src string, i int) (end int, spans []Span, err error) {
	s := &f.scan
	s.src, s.err, s.wide, s.window.end = src, nil, 0, 0
	s.found, s.keys.names = s.found[:0], s.keys.names[:0]
	end = s.value(i, 0, &f.root)
	if end < 0 {
		end = s.at
	}
	s.src = ""
	return end, s.found, s.err
}

// ASCII reports whether the text of the last Scan, if it succeeded, is ASCII and therefore UTF-8.
func (f *Finder) ASCII() bool { return f.scan.wide&highs == 0 }

func (n *node) child(key string) *node {
	for i := range n.children {
		if n.children[i].key == key {
			return n.children[i].to
		}
	}
	return n.others
}

// Cut appends to kept the parts of src[start:end], the text of one value, that remain without the
// members at spans and a comma for each. The spans must be those of one Scan, in its order; spans
// within a removed span are skipped.
func Cut(kept []string, src string, start, end int, spans []Span) []string {
	first := len(kept)
	for _, span := range spans {
		if span.Key < start {
			continue
		}
		kept = append(kept, src[start:span.Key])
		start = skipSpace(src, span.End)
		if start < end && src[start] == ',' {
			start++
			continue
		}
		kept = trimComma(kept, first) // the object ends here: remove the comma before the member
	}
	return append(kept, src[start:end])
}

// trimComma removes white space and one comma from the end of the parts.
func trimComma(kept []string, first int) []string {
	for i := len(kept) - 1; i >= first; i-- {
		piece := kept[i]
		for piece != "" && piece[len(piece)-1] <= ' ' {
			piece = piece[:len(piece)-1]
		}
		if piece != "" {
			if piece[len(piece)-1] == ',' {
				piece = piece[:len(piece)-1]
			}
			kept[i] = piece
			return kept
		}
		kept = slices.Delete(kept, i, i+1)
	}
	return kept
}
