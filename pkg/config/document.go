package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// What a document may be at most. A configuration is written by people; beyond these it is a mistake or an attack.
const (
	maxDocument = 1 << 20  // bytes of the file; a ConfigMap holds no more
	maxExpanded = 16 << 20 // bytes with every alias written out, counted as in measure
	maxDepth    = 100
	maxProblems = 1000 // that are reported; finding more helps nobody and takes memory
)

// document is the file that nodes come from.
type document struct {
	file, dir string
	text      string
	lines     []int // where each line begins in text
}

// ParseNode reads the YAML of one document. The file is for problems, and relative paths are relative to its folder.
func ParseNode(file string, data []byte) (Node, Problems) {
	doc := &document{file: file, dir: filepath.Dir(file), text: string(bytes.TrimPrefix(data, []byte("\ufeff")))}
	if p := doc.checkText(); p != nil {
		return Node{}, Problems{*p}
	}
	doc.lines = []int{0}
	for i := range len(doc.text) {
		if doc.text[i] == '\n' {
			doc.lines = append(doc.lines, i+1)
		}
	}
	root, problem := doc.parse()
	if problem != nil {
		return Node{}, Problems{*problem}
	}
	if problem := measureAll(doc, root); problem != nil {
		return Node{}, Problems{*problem}
	}
	return newNode(doc, root, ""), audit(Node{doc: doc}, root, nil)
}

// checkText refuses what would make a line in the file another one than in an editor.
func (d *document) checkText() *Problem {
	if len(d.text) > maxDocument {
		return &Problem{File: d.file, Message: "is larger than 1 MiB: a configuration is smaller; is it the right file?"}
	}
	if strings.TrimSpace(d.text) == "" {
		return &Problem{File: d.file, Message: "is empty: it needs at least version, sources, sinks and routes"}
	}
	line := 1
	for i, r := range d.text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(d.text[i:], "\ufffd"):
			return &Problem{File: d.file, Line: line, Message: "is not UTF-8: save the file as UTF-8"}
		case r == '\r' && !strings.HasPrefix(d.text[i:], "\r\n"):
			return &Problem{File: d.file, Line: line, Message: "has a carriage return that ends no line: save the file with \\n line ends"}
		case r == '\u0085', r == '\u2028', r == '\u2029':
			return &Problem{File: d.file, Line: line, Message: fmt.Sprintf("has an invisible line separator, %U: write \\n, or an escape in double quotes", r)}
		case r == '\n':
			line++
		}
	}
	return nil
}

// parse returns the root of the only document.
func (d *document) parse() (root *yaml.Node, problem *Problem) {
	var reader io.Reader = strings.NewReader(d.text)
	first, err := decodeNext(yaml.NewDecoder(reader))
	if err == nil && len(first.Content) == 1 {
		return first.Content[0], d.onlyOne()
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, &Problem{File: d.file, Message: "holds only comments: it needs at least version, sources, sinks and routes"}
	}
	return nil, d.syntaxProblem(err)
}

// onlyOne refuses a second document.
func (d *document) onlyOne() *Problem {
	decoder := yaml.NewDecoder(strings.NewReader(d.text))
	_, _ = decodeNext(decoder) // has been read without an error before
	second, err := decodeNext(decoder)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return d.syntaxProblem(err)
	}
	return &Problem{
		File: d.file, Line: second.Line, Column: second.Column,
		Message: "a second document begins here: a configuration is one document; remove the --- before it",
	}
}

// decodeNext reads one document. The library panics on some inputs that it should refuse.
func decodeNext(decoder *yaml.Decoder) (root *yaml.Node, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("yaml: the library cannot read this")
		}
	}()
	root = &yaml.Node{}
	err = decoder.Decode(root)
	return root, err
}

var (
	syntaxLine    = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxProblem finds out where an error of the library is: the library tells a line, but not always that of the mistake.
func (d *document) syntaxProblem(err error) *Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := syntaxLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	switch {
	case strings.HasPrefix(message, "did not find expected ',' or"):
		line++ // counted from 0: where the bracket opens
	case strings.HasPrefix(message, "did not find expected"):
		line = d.lineOfError()
	case unknownAnchor.MatchString(message):
		name := unknownAnchor.FindStringSubmatch(message)[1]
		line = 1 + strings.Count(d.text[:max(strings.Index(d.text, "*"+name), 0)], "\n")
	}
	line = min(max(line, 1), len(d.lines))
	return &Problem{File: d.file, Line: line, Message: "is not YAML: " + message + d.syntaxHint(line, message)}
}

// lineOfError reads the text once more, byte by byte, to see where the library stops.
func (d *document) lineOfError() int {
	reader := &byteReader{text: d.text}
	decoder := yaml.NewDecoder(reader)
	for {
		if _, err := decodeNext(decoder); err != nil {
			break
		}
	}
	const lookAhead = 4 // the library's
	return 1 + strings.Count(d.text[:max(reader.next-lookAhead, 0)], "\n")
}

// byteReader gives one byte at a time and knows how many it gave.
type byteReader struct {
	text string
	next int
}

// Read implements io.Reader.
func (r *byteReader) Read(p []byte) (int, error) {
	if r.next == len(r.text) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1)], r.text[r.next:])
	r.next += n
	return n, nil
}

// syntaxHint says what the mistake most likely is.
func (d *document) syntaxHint(line int, message string) string {
	text := d.line(line)
	switch {
	case strings.HasPrefix(strings.TrimLeft(text, " "), "\t"):
		return "; indent with spaces, not with tabs"
	case strings.Contains(text, "${") && strings.Contains(text, "{") && strings.Contains(message, "',' or"):
		return "; put ${…} in quotes inside of { }"
	case strings.Contains(message, "',' or"):
		return "; inside of { } or [ ], put an expression that has commas, brackets or colons in quotes"
	case strings.Contains(message, "mapping values are not allowed"), strings.Contains(message, "cannot start any token"):
		return "; put a value that holds `: ` or begins with a special character in quotes, or after | on lines of its own"
	case strings.Contains(message, "did not find expected key"), strings.Contains(message, "'-' indicator"):
		return "; is the indentation right?"
	case strings.Contains(message, "unexpected end of stream"):
		return "; a quote that opens here is not closed"
	case strings.Contains(message, "unknown escape character"):
		return `; in double quotes \\ stands for \, in single quotes it stands for itself`
	case unknownAnchor.MatchString(message):
		return "; write & and the same name before the value that is meant, or put text that begins with * in quotes"
	}
	return ""
}

// line returns a line, counted from 1, without its end.
func (d *document) line(number int) string {
	if number < 1 || number > len(d.lines) {
		return ""
	}
	text := d.text[d.lines[number-1]:]
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, "\r")
}

// measureAll refuses a document that is too deep, that contains itself, or that aliases make too large.
func measureAll(doc *document, root *yaml.Node) *Problem {
	m := measurer{known: map[*yaml.Node]measured{}}
	total := m.measure(root)
	at := Problem{File: doc.file, Line: root.Line, Column: root.Column}
	switch {
	case m.cycle != nil:
		at.Line, at.Column = m.cycle.Line, m.cycle.Column
		at.Message = "the value of anchor &" + m.cycle.Anchor + " contains itself: remove the alias *" + m.cycle.Anchor + " inside of it"
	case total.depth > maxDepth:
		at.Message = fmt.Sprintf("is nested more than %d deep", maxDepth)
	case total.size > maxExpanded:
		at.Message = "is larger than 16 MiB with its aliases written out: remove aliases of aliases"
	default:
		return nil
	}
	return &at
}

type measured struct{ size, depth int }

type measurer struct {
	known map[*yaml.Node]measured // size 0: being measured
	cycle *yaml.Node
}

// measure looks at each node once, however many aliases lead to it.
func (m *measurer) measure(n *yaml.Node) measured {
	if n.Kind == yaml.AliasNode {
		if seen, ok := m.known[n.Alias]; ok && seen.size == 0 {
			m.cycle = n.Alias
			return seen
		}
		return m.measure(n.Alias)
	}
	if seen, ok := m.known[n]; ok {
		return seen
	}
	m.known[n] = measured{}
	total := measured{size: 16 + len(n.Value)}
	for _, child := range n.Content {
		c := m.measure(child)
		total.size = min(total.size+c.size, 2*maxExpanded)
		total.depth = max(total.depth, c.depth)
	}
	total.depth++
	m.known[n] = total
	return total
}

// audit finds the mistakes of form that YAML itself lets pass, in every mapping, whoever decodes it: duplicate keys, keys that are
// no text, merges of something else than mappings, tags.
func audit(at Node, y *yaml.Node, problems Problems) Problems {
	n := Node{at.doc, y, place{y.Line, y.Column}, at.path}
	if y.Style&yaml.TaggedStyle != 0 && !standardTag(y.Tag) {
		problems = append(problems, n.Problemf("has the tag %s, which has no meaning here: remove it", y.Tag))
	}
	switch y.Kind {
	case yaml.SequenceNode:
		for i, child := range y.Content {
			n.path = at.path + "[" + strconv.Itoa(i) + "]"
			problems = audit(n, child, problems)
		}
	case yaml.MappingNode:
		problems = auditMapping(n, problems)
	}
	return problems
}

func auditMapping(n Node, problems Problems) Problems {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		k, v := n.yaml.Content[i], n.yaml.Content[i+1]
		key := newNode(n.doc, k, n.path)
		key.at = place{k.Line, k.Column}
		if key.yaml.Kind != yaml.ScalarNode {
			problems = append(problems, key.Problemf("a key must be text, not %s", key.describe()))
			continue
		}
		if isMerge(k) {
			if !mergeable(v) {
				problems = append(problems, key.Problemf("<< needs a mapping or a list of mappings: write <<: *anchor"))
			}
			problems = audit(n, v, problems)
			continue
		}
		child := Node{doc: n.doc, path: keyPath(n.path, key.yaml.Value)}
		key.path = child.path
		if first, ok := seen[key.yaml.Value]; ok {
			problems = append(problems, key.Problemf("is there twice, first in line %d: remove one", first))
		} else {
			seen[key.yaml.Value] = k.Line
		}
		problems = audit(child, v, problems)
	}
	return problems
}

// mergeable reports whether a value can be merged into a mapping.
func mergeable(v *yaml.Node) bool {
	for v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	if v.Kind == yaml.SequenceNode {
		for _, y := range v.Content {
			for y.Kind == yaml.AliasNode {
				y = y.Alias
			}
			if y.Kind != yaml.MappingNode {
				return false
			}
		}
		return true
	}
	return v.Kind == yaml.MappingNode
}

func standardTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!merge", "":
		return true
	}
	return false
}
