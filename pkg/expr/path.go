package expr

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// path is the argument of changed, parsed when the expression was compiled.
type path []step

// step is a key, or an index of an array where the value is one.
type step struct {
	key   string
	index int // -1: it can only be a key
}

// in follows the path. It returns "" where a part of it is missing or obj is nil.
func (p path) in(obj *event.Object) rawjson.Value {
	if obj == nil {
		return ""
	}
	v := obj.Raw()
	for _, s := range p {
		if v.Kind() == rawjson.Array {
			v = element(v, s.index)
		} else {
			v = v.Get(s.key)
		}
		if v == "" {
			break
		}
	}
	return v
}

func element(list rawjson.Value, index int) rawjson.Value {
	for elem := range list.Elems() {
		if index == 0 {
			return elem
		}
		index--
	}
	return ""
}

// parsePath reads metadata.labels["a.b/c"] or status.conditions[0].type. Inside brackets the quotes may be left out.
func parsePath(text string) (path, error) {
	var p path
	for rest := text; rest != "" || len(p) == 0; {
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			s, after, err := bracket(inner)
			if err != nil {
				return nil, err
			}
			p, rest = append(p, s), after
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, wrong("a name is missing; write it like status.conditions or metadata.labels[\"a.b/c\"]")
			}
			p, rest = append(p, step{key: rest[:end], index: -1}), rest[end:]
		}
		if after, ok := strings.CutPrefix(rest, "."); ok {
			if rest = after; rest == "" || rest[0] == '[' {
				return nil, wrong("a name is missing after the dot")
			}
		}
	}
	return p, nil
}

// bracket reads what follows an opening bracket, up to and with the closing one.
func bracket(s string) (found step, rest string, err error) {
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		key, after, ok := strings.Cut(s[1:], s[:1]+"]")
		if !ok {
			return step{}, "", fmt.Errorf("%s] is missing", s[:1])
		}
		return step{key: key, index: -1}, after, nil
	}
	key, after, ok := strings.Cut(s, "]")
	if !ok || key == "" {
		return step{}, "", wrong("a ] or the key in front of it is missing")
	}
	index, err := strconv.Atoi(key)
	if err != nil || index < 0 {
		index = -1
	}
	return step{key: key, index: index}, after, nil
}
