package fields

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// The bounds of a declaration.
const (
	mostPaths   = 256
	longestPath = 1024
)

// Mistake is an invalid path of a declaration.
type Mistake struct {
	Index int // of the path
	Err   error
}

// Check returns the mistakes of a declaration. A path below another one is none.
func Check(paths []string) (mistakes []Mistake) {
	if len(paths) > mostPaths {
		return []Mistake{{mostPaths, fmt.Errorf("there are %d fields, at most %d are possible: name objects above them", len(paths), mostPaths)}}
	}
	seen := map[string]bool{}
	for i, path := range paths {
		keys, err := Parse(path)
		if name := strings.Join(keys, "\x00"); err == nil && seen[name] {
			err = fmt.Errorf("%q occurs twice: remove one", path)
		} else if err == nil {
			seen[name] = true
		}
		if err != nil {
			mistakes = append(mistakes, Mistake{i, err})
		}
	}
	return mistakes
}

// Problems returns the mistakes of the section `fields` of a handler. n is the configuration of the
// handler, and paths the decoded section.
func Problems(n config.Node, paths []string) (problems config.Problems) {
	items := n.At("fields").Items()
	for _, mistake := range Check(paths) {
		if mistake.Index < len(items) {
			problems = append(problems, items[mistake.Index].Problemf("%v", mistake.Err))
		}
	}
	return problems
}

var (
	errEmpty = errors.New("is empty: write a path such as status.phase, or remove the entry")
	errIndex = errors.New("a path has no index: it continues in every element of a list, as in spec.containers.image")
)

// Parse splits a path into its keys: status.phase, or metadata.labels["app.kubernetes.io/name"].
// The error does not name the path if it is empty.
func Parse(path string) (keys []string, err error) {
	switch {
	case path == "":
		return nil, errEmpty
	case len(path) > longestPath:
		return nil, fmt.Errorf("a path has %d bytes, at most %d are possible", len(path), longestPath)
	}
	for rest := path; ; {
		key, after, ok := firstKey(rest, len(keys) == 0)
		switch {
		case !ok && isIndex(rest):
			return nil, fmt.Errorf("%q: %w", path, errIndex)
		case !ok:
			return nil, fmt.Errorf(`%q is not a path: write keys with dots between them, as in status.phase or metadata.labels["app.kubernetes.io/name"]`, path)
		}
		keys = append(keys, key)
		if after == "" {
			return keys, nil
		}
		rest = after
	}
}

// Keys returns valid paths as keys.
func Keys(paths []string) (all [][]string) {
	for _, path := range paths {
		if keys, err := Parse(path); err == nil {
			all = append(all, keys)
		}
	}
	return all
}

// firstKey reads a key at the begin of a path or, unless it is the first one, behind another key.
func firstKey(path string, first bool) (key, after string, ok bool) {
	if quoted, isQuoted := strings.CutPrefix(path, "["); isQuoted && !first {
		if quoted == "" || quoted[0] != '"' && quoted[0] != '\'' {
			return "", "", false
		}
		key, after, ok = strings.Cut(quoted[1:], quoted[:1]+"]")
		return key, after, ok && key != "" && (after == "" || after[0] == '.' || after[0] == '[')
	}
	if !first {
		if path[0] != '.' {
			return "", "", false
		}
		path = path[1:]
	}
	end := strings.IndexFunc(path, func(r rune) bool { return !isPlain(r) })
	if end < 0 {
		end = len(path)
	}
	return path[:end], path[end:], end > 0 && (end == len(path) || path[end] == '.' || path[end] == '[')
}

// isPlain reports whether a character may stand in a key without quotes.
func isPlain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// isIndex reports whether the rest of a path begins with [0], [*] or [].
func isIndex(path string) bool {
	return len(path) > 1 && path[0] == '[' && slices.Contains([]byte("]*0123456789"), path[1])
}
