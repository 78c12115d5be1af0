package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// compileError makes cel-go's issues ours.
func (s *scope) compileError(define, text string, issues *cel.Issues) *CompileError {
	out := &CompileError{Define: define}
	missed := s.env.types.takeMissed()
	for _, issue := range issues.Errors() {
		found := Issue{Line: max(1, issue.Location.Line()), Column: max(0, issue.Location.Column())}
		if name, ok := strings.CutPrefix(issue.Message, "undefined field '"); ok {
			name = strings.TrimSuffix(name, "'")
			found.Message = undefinedField(name, &missed)
			found.Line, found.Column = afterDot(text, found.Line, found.Column)
		} else {
			found.Message = s.message(issue)
		}
		out.Issues = append(out.Issues, found)
		if strings.HasPrefix(found.Message, syntaxError) {
			break // the others are what the parser made of what followed
		}
	}
	return out
}

const syntaxError = "syntax error: "

// message shortens a message of cel-go and adds the nearest name to one about a name, or what helps. Should cel-go change its texts,
// the messages get longer, not wrong.
func (s *scope) message(issue *common.Error) string {
	m := strings.TrimSuffix(issue.Message, " (in container '')")
	if name, ok := strings.CutPrefix(m, "undeclared reference to '"); ok {
		name = strings.TrimSuffix(name, "'")
		if meant, ok := otherNames()[name]; ok {
			return fmt.Sprintf("%s; did you mean %q?", m, meant)
		}
		if s.aboutEvents {
			return m + "; an expression about an event sees event and secrets"
		}
		return m + suggest(name, s.knownNames())
	}
	if syntax, ok := strings.CutPrefix(m, "Syntax error: "); ok {
		return syntaxError + syntaxMessage(syntax)
	}
	if strings.HasSuffix(m, "' does not support field selection") {
		return m + remedyForSelection(m)
	}
	if strings.HasPrefix(m, "found no matching overload for '") {
		m = regexp.MustCompile(`^(found no matching overload for '(?:lookup|get|list)' applied to '\()[^,()]*\.[^,()]*, `).ReplaceAllString(m, "$1")
		return noOverloadFor(m) + remedyForOverload(m)
	}
	return m
}

// otherNames are what other languages call functions of CEL.
func otherNames() map[string]string {
	return map[string]string{
		"beginsWith": "startsWith", "hasPrefix": "startsWith", "hasSuffix": "endsWith", "includes": "contains", "len": "size", "length": "size",
		"any": "exists", "some": "exists", "every": "all", "toLower": "lowerAscii", "toUpper": "upperAscii", "lower": "lowerAscii",
		"upper": "upperAscii", "match": "matches", "str": "string",
	}
}

// syntaxMessage makes what the parser says of what it expected a bit less its own business.
func syntaxMessage(m string) string {
	m, _, _ = strings.Cut(m, " expecting ")
	switch {
	case strings.HasSuffix(m, "'<EOF>'"):
		return "the expression ends where something has to follow"
	case strings.HasPrefix(m, "token recognition error at: '= "), m == "token recognition error at: '='":
		return "there is no =; compare with =="
	case strings.HasPrefix(m, "token recognition error at: '& "), strings.HasPrefix(m, "token recognition error at: '| "):
		return "conditions are joined with && and ||"
	case strings.HasPrefix(m, "token recognition error at: ''"), strings.HasPrefix(m, "token recognition error at: '\""):
		return "a quote that opens here is not closed"
	case strings.HasPrefix(m, "token recognition error at: '"):
		return "this cannot stand here: " + strings.TrimPrefix(m, "token recognition error at: ")
	}
	return m
}

// noOverloadFor says it without the names that operators have inside.
func noOverloadFor(m string) string {
	name, args, ok := strings.Cut(strings.TrimPrefix(m, "found no matching overload for '"), "' applied to '")
	if !ok {
		return m
	}
	args = strings.TrimSuffix(args, "'")
	if name == "_?_:_" {
		return "? : does not take " + args
	}
	operator := strings.Trim(strings.TrimPrefix(name, "@"), "_")
	switch {
	case name == "_[_]":
		return "[] does not take " + args
	case operator != name:
		return operator + " does not take " + args
	}
	if target, rest, ok := strings.Cut(args, ".("); ok {
		return fmt.Sprintf("%s() of a %s does not take (%s", name, target, rest)
	}
	return name + "() does not take " + args
}

func remedyForSelection(m string) string {
	switch {
	case strings.HasPrefix(m, "type 'list("):
		return "; take an element with [0], or look through all with exists() or all()"
	case strings.HasPrefix(m, "type 'string'"):
		return "; a text has no fields"
	case strings.HasPrefix(m, "type 'timestamp'"):
		return "; it is a time, with functions like getFullYear()"
	}
	return ""
}

// remedyForOverload knows what often goes wrong since types are known.
func remedyForOverload(m string) string {
	operator, args, _ := strings.Cut(strings.TrimPrefix(m, "found no matching overload for '"), "' applied to '")
	args = strings.TrimSuffix(strings.TrimPrefix(args, "("), ")'")
	left, right, _ := strings.Cut(args, ", ")
	switch operator {
	case "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_":
		return remedyForComparison(left, right)
	case "_-_":
		if left == "timestamp" {
			return remedyForComparison(left, right)
		}
	case "_[_]":
		if right == "string" && strings.Contains(left, ".") {
			return "; its fields are taken with a dot"
		}
	case fnSHA256:
		return "; it takes a text or bytes"
	case fnDiff:
		return "; what is compared must be the same part of two objects, as in diff(oldObject.spec, object.spec)"
	case "@in":
		if strings.Contains(right, ".") {
			return "; ask with has() whether there is a field"
		}
	case "_?_:_":
		if left != "bool" {
			return "; the condition must be true or false"
		}
		return "; both results must be of one type, or dyn(...) around one of them"
	}
	return ""
}

func remedyForComparison(left, right string) string {
	sides := []string{left, right}
	slices.Sort(sides)
	switch pair := strings.Join(sides, " "); {
	case slices.Contains(sides, "null"):
		return "; it is never null: ask with has() whether it is there"
	case pair == "string timestamp":
		return `; make a time of the text: timestamp("2006-01-02T15:04:05Z")`
	case pair == "int string", pair == "double string":
		return "; make a number of the text with int() or double(), or put the number in quotes"
	case pair == "double int":
		return "; make a double of the int with double(), or write it with a point"
	case pair == "bytes string":
		return "; make a text of the bytes with string()"
	case pair == "bool string":
		return "; true and false stand without quotes"
	}
	return ""
}

// undefinedField says what the object has instead; the type is the first of that name that was missed.
func undefinedField(name string, missed *[]missedField) string {
	i := slices.IndexFunc(*missed, func(m missedField) bool { return m.field == name })
	if i < 0 {
		return fmt.Sprintf("there is no field %q", name)
	}
	of := (*missed)[i].of
	*missed = slices.Delete(*missed, i, i+1)
	return noField(of, name)
}

// suggestInside looks for the field one level deeper: object.replicas for object.spec.replicas.
func suggestInside(name string, of *schema.Type) string {
	for _, key := range slices.Sorted(maps.Keys(of.Fields)) {
		if _, ok := of.Fields[key].Type.Fields[name]; ok {
			return fmt.Sprintf("; did you mean %q?", key+"."+name)
		}
	}
	return ""
}

// afterDot finds the name behind the dot that cel-go gives as the place of a selection.
func afterDot(text string, line, column int) (nameLine, nameColumn int) {
	lines := strings.Split(text, "\n")
	at := line - 1
	for begun := false; at < len(lines); at++ {
		runes := []rune(lines[at])
		for i := min(column, len(runes)); i < len(runes); i++ {
			switch c := runes[i]; {
			case !begun && c != '.':
				return line, column
			case c == '.' || c == '?' || c == ' ' || c == '\t' || c == '\r':
				begun = true
			default:
				return at + 1, i
			}
		}
		column = 0
	}
	return line, column
}

func (s *scope) knownNames() []string {
	names := slices.Collect(maps.Keys(s.env.texts))
	names = append(names, nameObject, nameOldObject, nameOp, nameSource, nameCluster, nameNow, nameSince, nameLate, nameRepeat, nameSuppressed, nameObjects, nameEvent, nameEvents)
	for name := range s.cel.Functions() {
		if name[0] >= 'a' && name[0] <= 'z' && !strings.Contains(name, at) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
