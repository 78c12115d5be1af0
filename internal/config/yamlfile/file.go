// Package yamlfile reads the text of one YAML document and knows the position of each part.
package yamlfile

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

	"github.com/deltarouter/deltarouter/internal/config/files"
)

// The limits of a document. A configuration is written by people; a larger one is a mistake or an
// attack.
const (
	maxExpanded = 16 << 20 // bytes with all aliases expanded, see measure
	maxDepth    = 100
	maxQuoted   = 300 // bytes of a line in a message
)

// File is the text of nodes.
type File struct {
	Name, Dir string
	text      string
	lines     []int // offsets of the lines in text
	parts     []part
}

// Mistake is a mistake in the text.
type Mistake struct {
	File    string // empty: the only one
	At      Place  // zero: the whole file
	Message string
	Text    string // the line, if that is all that is known of the place

	Empty bool // the file has no content
}

// Place is a position in a file. Lines and columns begin at 1; columns count characters.
type Place struct{ Line, Column int }

// Parse reads the YAML of one document. It refuses documents that are too large or too deep, and
// characters that make line numbers differ from those of an editor.
func Parse(name string, data []byte) (*File, *yaml.Node, *Mistake) {
	f := &File{Name: name, Dir: filepath.Dir(name), text: string(bytes.TrimPrefix(data, []byte("\ufeff")))}
	if m := f.checkText(); m != nil {
		return f, nil, m
	}
	f.lines = []int{0}
	for i := range len(f.text) {
		if f.text[i] == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	root, m := f.parse()
	if m == nil {
		m = measureAll(root)
	}
	if m != nil {
		return f, nil, m
	}
	return f, root, nil
}

// checkText refuses characters that make line numbers differ from those of an editor.
func (f *File) checkText() *Mistake {
	if len(f.text) > files.MaxSize {
		return &Mistake{Message: "is larger than 1 MiB: a configuration is smaller; is it the right file?"}
	}
	if strings.TrimSpace(f.text) == "" {
		return &Mistake{Message: isEmpty, Empty: true}
	}
	line := 1
	for i, r := range f.text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(f.text[i:], "\ufffd"):
			return &Mistake{At: Place{Line: line}, Message: "is not UTF-8: save the file as UTF-8"}
		case r == '\r' && !strings.HasPrefix(f.text[i:], "\r\n"):
			return &Mistake{At: Place{Line: line}, Message: "has a carriage return that ends no line: save the file with \\n line ends"}
		case r == '\u0085', r == '\u2028', r == '\u2029':
			return &Mistake{At: Place{Line: line}, Message: fmt.Sprintf("has an invisible line separator, %U: write \\n, or an escape in double quotes", r)}
		case r == '\n':
			line++
		}
	}
	return nil
}

// parse returns the root of the only document.
func (f *File) parse() (root *yaml.Node, problem *Mistake) {
	var reader io.Reader = strings.NewReader(f.text)
	first, err := decodeNext(yaml.NewDecoder(reader))
	if err == nil && len(first.Content) == 1 {
		root = first.Content[0]
		if problem = f.onlyOne(); problem == nil && isNothing(root) {
			problem = &Mistake{Message: isEmpty, Empty: true}
		}
		return root, problem
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, &Mistake{Message: "holds only comments: it needs at least version, sources, sinks and routes", Empty: true}
	}
	return nil, f.syntaxProblem(err)
}

const isEmpty = "is empty: it needs at least version, sources, sinks and routes"

// isNothing reports whether a document has no content, such as a lone ---. The library places such
// a document behind the last line.
func isNothing(root *yaml.Node) bool {
	return root.Kind == yaml.ScalarNode && root.Tag == "!!null" && root.Value == ""
}

// onlyOne refuses a second document.
func (f *File) onlyOne() *Mistake {
	decoder := yaml.NewDecoder(strings.NewReader(f.text))
	_, _ = decodeNext(decoder) // was read before without an error
	second, err := decodeNext(decoder)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return f.syntaxProblem(err)
	}
	return &Mistake{
		At:      Place{second.Line, second.Column},
		Message: "a second document begins here: a configuration is one document; remove the --- before it",
	}
}

// decodeNext reads one document. The library panics on some invalid inputs.
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

// syntaxProblem finds the position of an error of the library. The line in the library's message is
// not always that of the mistake.
func (f *File) syntaxProblem(err error) *Mistake {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := syntaxLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	switch {
	case strings.HasPrefix(message, "did not find expected ',' or"):
		line++ // counted from 0; the line of the open bracket
	case strings.HasPrefix(message, "did not find expected"):
		line = f.lineOfError()
	case unknownAnchor.MatchString(message):
		name := unknownAnchor.FindStringSubmatch(message)[1]
		line = 1 + strings.Count(f.text[:max(strings.Index(f.text, "*"+name), 0)], "\n")
	}
	line = min(max(line, 1), len(f.lines))
	m := &Mistake{At: Place{Line: line}, Message: "is not YAML: " + message + f.syntaxHint(line, message)}
	if text := f.Line(line); len(text) <= maxQuoted {
		m.Text = text
	}
	return m
}

// lineOfError reads the text again byte by byte, to find the line at which the library stops.
func (f *File) lineOfError() int {
	reader := &byteReader{text: f.text}
	decoder := yaml.NewDecoder(reader)
	for {
		if _, err := decodeNext(decoder); err != nil {
			break
		}
	}
	const lookAhead = 4 // the library's
	return 1 + strings.Count(f.text[:max(reader.next-lookAhead, 0)], "\n")
}

// byteReader returns one byte at a time and counts them.
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

// syntaxHint returns the most likely cause of an error.
func (f *File) syntaxHint(line int, message string) string {
	text := f.Line(line)
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

// Line returns a line without its end. Lines are counted from 1.
func (f *File) Line(number int) string {
	if number < 1 || number > len(f.lines) {
		return ""
	}
	text := f.text[f.lines[number-1]:]
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, "\r")
}

// IsMerge reports whether a key is a merge key, <<.
func IsMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.Tag == "!!merge" }

// Key returns the text of a key. Keys that are no scalars were reported when the document was read.
func Key(k *yaml.Node) string {
	for k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	return k.Value
}
