package files

import "strings"

// Table is the open files of one instance. One goroutine uses it at a time.
type Table struct {
	tree *Tree
	open []*file // by descriptor, from First
}

// First is the descriptor of the root folder. Those before it are stdin, stdout and stderr.
const First = 3

// maxOpen is the maximum number of open files.
const maxOpen = 128

// file is an open file or folder.
type file struct {
	node *node
	at   int
}

// Errno is an error of WASI preview 1. 0: none.
type Errno int64

// The errors of files.
const (
	OK            Errno = 0
	BadDescriptor Errno = 8
	Invalid       Errno = 28
	IsFolder      Errno = 31
	TooMany       Errno = 33
	NotFound      Errno = 44
	NotFolder     Errno = 54
	ReadOnly      Errno = 69
	Outside       Errno = 76 // of the folder that was granted
)

// NewTable returns the table of a new instance. The root folder is open.
func NewTable(of *Tree) *Table {
	return &Table{tree: of, open: []*file{{node: of.root}}}
}

func (t *Table) get(fd uint32) *file {
	if i := int64(fd) - First; i >= 0 && i < int64(len(t.open)) {
		return t.open[i]
	}
	return nil
}

// Has reports whether a descriptor is open.
func (t *Table) Has(fd uint32) bool { return t.get(fd) != nil }

// find returns the file at a path below an open folder.
func (t *Table) find(fd uint32, path string) (*node, Errno) {
	from := t.get(fd)
	switch {
	case from == nil:
		return nil, BadDescriptor
	case !from.node.dir:
		return nil, NotFolder
	case strings.HasPrefix(path, "/"):
		return nil, Outside
	}
	way := []*node{from.node}
	for _, name := range split(path) {
		at := way[len(way)-1]
		switch {
		case !at.dir:
			return nil, NotFolder
		case name == ".":
		case name == ".." && len(way) == 1:
			return nil, Outside
		case name == "..":
			way = way[:len(way)-1]
		default:
			next := at.child(name)
			if next == nil {
				return nil, NotFound
			}
			way = append(way, next)
		}
	}
	found := way[len(way)-1]
	if !found.dir && strings.HasSuffix(path, "/") {
		return nil, NotFolder
	}
	return found, OK
}

// Open opens the file at a path below an open folder.
func (t *Table) Open(fd uint32, path string, mustBeFolder bool) (opened uint32, err Errno) {
	n, err := t.find(fd, path)
	if err != OK {
		return 0, err
	}
	if mustBeFolder && !n.dir {
		return 0, NotFolder
	}
	i := 1
	for i < len(t.open) && t.open[i] != nil {
		i++
	}
	if i == maxOpen {
		return 0, TooMany
	}
	if i == len(t.open) {
		t.open = append(t.open, nil)
	}
	t.open[i] = &file{node: n}
	return uint32(i + First), OK //nolint:gosec // at most maxOpen
}

// Close closes a file.
func (t *Table) Close(fd uint32) Errno {
	if t.get(fd) == nil {
		return BadDescriptor
	}
	t.open[fd-First] = nil
	return OK
}

// Read returns at most n bytes from the position of a file, and moves the position.
func (t *Table) Read(fd uint32, n int) ([]byte, Errno) {
	f := t.get(fd)
	if f == nil {
		return nil, BadDescriptor
	}
	data, err := t.ReadAt(fd, n, uint64(f.at))
	f.at += len(data)
	return data, err
}

// ReadAt returns at most n bytes from a position of a file.
func (t *Table) ReadAt(fd uint32, n int, at uint64) ([]byte, Errno) {
	f := t.get(fd)
	switch {
	case f == nil:
		return nil, BadDescriptor
	case f.node.dir:
		return nil, IsFolder
	case at >= uint64(len(f.node.data)):
		return nil, OK
	}
	rest := f.node.data[at:]
	return rest[:min(n, len(rest))], OK
}

// Seek moves the position of a file: by is counted from its start (0), the position (1), or its end
// (2).
func (t *Table) Seek(fd uint32, by int64, from uint32) (at int64, err Errno) {
	f := t.get(fd)
	if f == nil {
		return 0, BadDescriptor
	}
	if f.node.dir {
		return 0, IsFolder
	}
	start := int64(0)
	switch from {
	case 0:
	case 1:
		start = int64(f.at)
	case 2:
		start = int64(len(f.node.data))
	default:
		return 0, Invalid
	}
	at = start + by
	if at < 0 || at > 1<<40 || by > 1<<40 {
		return 0, Invalid
	}
	f.at = int(at)
	return at, OK
}

// Info describes a file.
type Info struct {
	Inode  uint64
	Folder bool
	Size   uint64
}

func (n *node) info() Info { return Info{n.inode, n.dir, uint64(len(n.data))} }

// Stat describes an open file.
func (t *Table) Stat(fd uint32) (Info, Errno) {
	if f := t.get(fd); f != nil {
		return f.node.info(), OK
	}
	return Info{}, BadDescriptor
}

// StatPath describes the file at a path below an open folder.
func (t *Table) StatPath(fd uint32, path string) (Info, Errno) {
	n, err := t.find(fd, path)
	if err != OK {
		return Info{}, err
	}
	return n.info(), OK
}

// Entry is an entry of a folder.
type Entry struct {
	Info

	Name string
}

// Entry returns an entry of a folder by its number. done: there are no more.
func (t *Table) Entry(fd uint32, number uint64) (e Entry, done bool, err Errno) {
	f := t.get(fd)
	switch {
	case f == nil:
		return e, true, BadDescriptor
	case !f.node.dir:
		return e, true, NotFolder
	case number >= uint64(len(f.node.children)):
		return e, true, OK
	}
	n := f.node.children[number]
	return Entry{n.info(), n.name}, false, OK
}
