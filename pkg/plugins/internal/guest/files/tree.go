package files

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Tree is the read-only files of a guest, in memory. It is safe for concurrent use.
type Tree struct {
	root  *node
	nodes uint64
	bytes int64
}

// node is a file or a folder.
type node struct {
	name     string
	inode    uint64
	dir      bool
	data     []byte
	children []*node // sorted by name
}

// The limits of a tree.
const (
	MaxBytes = 64 << 20
	MaxFiles = 10_000 // folders included
	maxDepth = 32     // folders within each other
)

// Hash writes the names and contents of all files to w, which never fails.
func (t *Tree) Hash(w io.Writer) { t.root.hash(w) }

func (n *node) hash(w io.Writer) {
	fmt.Fprintf(w, "\x00%q %t %d %d\x00", n.name, n.dir, len(n.data), len(n.children))
	_, _ = w.Write(n.data)
	for _, child := range n.children {
		child.hash(w)
	}
}

func newTree() *Tree { return &Tree{root: &node{name: "/", inode: 1, dir: true}, nodes: 1} }

// child returns the entry of a folder with a name, or nil.
func (n *node) child(name string) *node {
	if i, found := slices.BinarySearchFunc(n.children, name, byName); found {
		return n.children[i]
	}
	return nil
}

func byName(n *node, name string) int { return cmp.Compare(n.name, name) }

// make returns the entry of a folder with a name, and makes it unless it exists.
func (t *Tree) make(in *node, name string, dir bool) (*node, error) {
	i, found := slices.BinarySearchFunc(in.children, name, byName)
	if found {
		return in.children[i], nil
	}
	if t.nodes >= MaxFiles {
		return nil, fmt.Errorf("more than %d files", MaxFiles)
	}
	t.nodes++
	made := &node{name: name, inode: t.nodes, dir: dir}
	in.children = slices.Insert(in.children, i, made)
	return made, nil
}

// folder returns the folder at a path, and makes it unless it exists.
func (t *Tree) folder(path string) (*node, error) {
	at := t.root
	names := split(path)
	if len(names) > maxDepth {
		return nil, fmt.Errorf("deeper than %d folders (a link to a folder around it?)", maxDepth)
	}
	for _, name := range names {
		var err error
		if at, err = t.make(at, name, true); err != nil {
			return nil, err
		}
		if !at.dir {
			return nil, fmt.Errorf("%s is a file and a folder", path)
		}
	}
	return at, nil
}

// add adds a file. Nothing may be at its path.
func (t *Tree) add(path string, data []byte) error {
	parent, name := cutLast(path)
	in, err := t.folder(parent)
	if err != nil {
		return err
	}
	if name == "" || in.child(name) != nil {
		return fmt.Errorf("%s exists twice", path)
	}
	n, err := t.make(in, name, false)
	if err != nil {
		return err
	}
	n.data = data
	t.bytes += int64(len(data))
	return nil
}

// split returns the names in a path.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func cutLast(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
