package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// check follows the path through the type of an object, as far as that is described. It returns the first step that leads nowhere, and why.
func (p path) check(text string, t *schema.Type) *pathError {
	inMap := false // the step before was the key of a map
	for i, s := range p {
		if t == nil {
			return nil
		}
		failed := func(format string, args ...any) *pathError { return &pathError{s.at, fmt.Sprintf(format, args...)} }
		of := t
		switch t.Kind {
		case schema.Any:
			return nil
		case schema.Map:
			t = t.Elem
		case schema.List:
			if !s.all && s.index < 0 {
				return failed("%s is a list: take all its elements with [*], or one with [0]", before(text, s.at))
			}
			t = t.Elem
		case schema.Object:
			if s.all {
				return failed("[*] takes all of a list or map, and %s is neither: name a field of it", before(text, s.at))
			}
			f, ok := t.Fields[s.key]
			if !ok {
				return failed("%s", noField(t, s.key))
			}
			t = f.Type
		default: // no object has it as its type, so there is a step before
			if key := text[p[i-1].at:]; inMap && !strings.ContainsAny(key, `[]"'`) {
				return failed("%s has no fields; a key with dots stands in brackets: %s[%q]", before(text, s.at), before(text, p[i-1].at), key)
			}
			return failed("%s has no fields", before(text, s.at))
		}
		inMap = of.Kind == schema.Map
	}
	return nil
}

// before is the text of the path in front of the step that begins at an offset.
func before(text string, at int) string { return strings.TrimRight(text[:at], ".[") }

// noField says that an object does not have a field, and what it may be instead.
func noField(of *schema.Type, name string) string {
	fields := slices.Sorted(maps.Keys(of.Fields))
	hint := suggest(name, fields)
	if hint == "" {
		hint = suggestInside(name, of)
	}
	if hint == "" && len(fields) <= 8 {
		hint = "; it has " + strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s has no field %q%s", of.Name, name, hint)
}

// path checks the argument of changed: its form, and whether objects of this place have it.
func (l *linker) path(u unit, arg ast.Expr, text string) (p path, ok bool) {
	p, err := parsePath(text)
	if err == nil {
		var of *schema.Type
		if s := l.env.shapes[l.scope.source]; s != nil {
			of = s.of
		}
		failed := p.check(text, of)
		if failed == nil {
			return p, true
		}
		err = failed
	}
	at := 0
	if failed, isPath := err.(*pathError); isPath { //nolint:errorlint // it is made here
		at = failed.at
	}
	l.inside(u, arg, text, at, "path: "+err.Error())
	return nil, false
}

// inside reports a problem at a byte of a literal text. The place is that of the literal if it has escapes.
func (l *linker) inside(u unit, literal ast.Expr, text string, at int, message string) {
	info := u.ast.NativeRep().SourceInfo()
	place := info.GetStartLocation(literal.ID())
	issue := Issue{Line: max(1, place.Line()), Column: max(0, place.Column()), Message: message}
	lines := strings.Split(u.ast.Source().Content(), "\n")
	if n := issue.Line - 1; n < len(lines) {
		if runes := []rune(lines[n]); issue.Column < len(runes) {
			opening := string(runes[issue.Column:])
			if i := strings.Index(opening, text); i > 0 && i <= 4 && strings.Trim(opening[:i], `rR"'`) == "" {
				issue.Column += i + len([]rune(text[:at]))
			}
		}
	}
	l.issues[u.define] = append(l.issues[u.define], issue)
}
