package yamlfile

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/files"
)

// part is a file of a document that several files make up. Its lines follow those of the part
// before.
type part struct {
	name  string
	first int // line of the document, from 1
}

// Where returns the file of a line of the document, and the line in that file.
func (f *File) Where(line int) (name string, inFile int) {
	i := sort.Search(len(f.parts), func(i int) bool { return f.parts[i].first > line }) - 1
	if i < 0 || line == 0 {
		return f.Name, line
	}
	return f.parts[i].name, line - f.parts[i].first + 1
}

// ParseAll reads the files of a folder as one document: it merges the mappings below the keys of
// the files, and joins the lists. The nodes have lines of the document, see [File.Where]. Files
// without content are ignored.
func ParseAll(folder string, all []files.File) (*File, *yaml.Node, *Mistake) {
	doc := &File{Name: folder, Dir: folder}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} // at no line: of no file
	size := 0
	for _, one := range all {
		f, y, m := Parse(one.Name, one.Data)
		if m != nil && m.Empty {
			continue
		}
		if m == nil && y.Kind != yaml.MappingNode {
			m = &Mistake{At: Place{y.Line, y.Column}, Message: "must be a mapping with the keys of a configuration"}
		}
		if m != nil {
			m.File = one.Name
			return doc, nil, m
		}
		size += len(one.Data)
		first := doc.add(f)
		shift(y, first-1, map[*yaml.Node]bool{})
		merge(root, y)
	}
	m := measureAll(root)
	switch {
	case len(root.Content) == 0:
		m = &Mistake{Message: isEmpty}
	case size > files.MaxSize:
		m = &Mistake{Message: "its files are larger than 1 MiB together: a configuration is smaller; is it the right folder?"}
	case m == nil:
		return doc, root, nil
	}
	m.File, m.At.Line = doc.Where(m.At.Line)
	return doc, nil, m
}

// add appends the text of a file, and returns the line of the document at which it begins.
func (f *File) add(other *File) (first int) {
	first = len(f.lines) + 1
	f.parts = append(f.parts, part{other.Name, first})
	for _, begin := range other.lines {
		f.lines = append(f.lines, len(f.text)+begin)
	}
	f.text += strings.TrimSuffix(other.text, "\n") + "\n"
	if strings.HasSuffix(other.text, "\n") { // the line behind the last line end is no line
		f.lines = f.lines[:len(f.lines)-1]
	}
	return first
}

// shift moves nodes by a number of lines.
func shift(y *yaml.Node, lines int, done map[*yaml.Node]bool) {
	if done[y] {
		return
	}
	done[y] = true
	y.Line += lines
	for _, child := range y.Content {
		shift(child, lines, done)
	}
}

// merge adds the keys of a file to the document. A key that cannot be merged occurs twice then.
func merge(root, file *yaml.Node) {
	for i := 0; i+1 < len(file.Content); i += 2 {
		k, v := file.Content[i], file.Content[i+1]
		at := -1
		for j := 0; j+1 < len(root.Content); j += 2 {
			if k.Kind == yaml.ScalarNode && !IsMerge(k) && root.Content[j].Kind == yaml.ScalarNode && root.Content[j].Value == k.Value {
				at = j + 1
				break
			}
		}
		if at < 0 || !join(root, at, k, v) {
			root.Content = append(root.Content, k, v)
		}
	}
}

// join merges the value of a key into the value at a place of the document.
func join(root *yaml.Node, at int, k, v *yaml.Node) bool {
	was, add := resolve(root.Content[at]), resolve(v)
	switch {
	case k.Value == "version" && was.Kind == yaml.ScalarNode && add.Kind == yaml.ScalarNode && was.Value == add.Value:
		return true // each file may have it
	case was.Kind != add.Kind || was.Kind != yaml.MappingNode && was.Kind != yaml.SequenceNode:
		return false
	}
	joined := *was // an anchor keeps its own value
	joined.Content = append(append([]*yaml.Node{}, was.Content...), add.Content...)
	root.Content[at] = &joined
	return true
}

func resolve(y *yaml.Node) *yaml.Node {
	for y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	return y
}

// Ref names a line in a message about another line of the document.
func (f *File) Ref(line int) string {
	name, inFile := f.Where(line)
	if len(f.parts) == 0 {
		return fmt.Sprintf("line %d", inFile)
	}
	return fmt.Sprintf("line %d of %s", inFile, filepath.Base(name))
}

// LineOf returns a line of one of the files.
func (f *File) LineOf(name string, line int) string {
	if len(f.parts) == 0 && name == f.Name {
		return f.Line(line)
	}
	for _, p := range f.parts {
		if p.name == name {
			return f.Line(p.first + line - 1)
		}
	}
	return ""
}
