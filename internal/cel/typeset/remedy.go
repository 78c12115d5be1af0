package typeset

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// otherNames maps names of functions in other languages to those of CEL.
func otherNames() map[string]string {
	return map[string]string{
		"beginsWith": "startsWith", "hasPrefix": "startsWith", "hasSuffix": "endsWith", "includes": "contains", "len": "size", "length": "size",
		"any": "exists", "some": "exists", "every": "all", "toLower": "lowerAscii", "toUpper": "upperAscii", "lower": "lowerAscii",
		"upper": "upperAscii", "match": "matches", "str": "string",
		"orDefault": "orValue", "orElse": "orValue", "getOrDefault": "orValue", "default": "orValue", "undefined": "null", "None": "null", "nil": "null",
	}
}

var (
	unexpected  = regexp.MustCompile(`(?s)^(?:extraneous input|mismatched input|no viable alternative at input) ('.*')$`)
	besideValue = regexp.MustCompile("^(?:extraneous|mismatched) input '[\\w\"'`]")
	missing     = regexp.MustCompile(`(?s)^missing (.*) at ('.*')$`)
)

// syntaxMessage replaces the terms of the parser in its message about an unexpected token.
func syntaxMessage(m string) string {
	m, _, _ = strings.Cut(m, " expecting ")
	switch {
	case strings.HasSuffix(m, "'<EOF>'"):
		return "the expression ends where something has to follow"
	case strings.HasPrefix(m, "token recognition error at: '= "), m == "token recognition error at: '='":
		return "there is no =; compare with =="
	case strings.HasPrefix(m, "token recognition error at: '& "), strings.HasPrefix(m, "token recognition error at: '| "):
		return "join conditions with && and ||"
	case strings.HasPrefix(m, "token recognition error at: ''"), strings.HasPrefix(m, "token recognition error at: '\""):
		return "a quote that opens here is not closed"
	case strings.HasPrefix(m, "token recognition error at: '"):
		return "unexpected " + strings.TrimPrefix(m, "token recognition error at: ")
	case besideValue.MatchString(m):
		return unexpected.ReplaceAllString(m, "unexpected $1") + "; put text in quotes, and join values with an operator such as + or &&"
	case unexpected.MatchString(m):
		return unexpected.ReplaceAllString(m, "unexpected $1")
	}
	return missing.ReplaceAllString(m, "$1 is missing before $2")
}

// noOverloadFor writes the message without the internal names of operators.
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
		return "; select an element with [0], or test all with exists() or all()"
	case strings.HasPrefix(m, "type 'string'"):
		return "; a text has no fields"
	case strings.HasPrefix(m, "type 'timestamp'"):
		return "; it is a time, with functions like getFullYear()"
	}
	return ""
}

// remedyForOverload returns the remedies for frequent mistakes of types.
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
	case "_+_":
		if (left == "string") != (right == "string") {
			return "; convert the other to a text with string()"
		}
	case "_[_]":
		if right == "string" && strings.HasPrefix(left, "list(") {
			return `; a list has no keys: look for the element, as in list.exists(x, x.type == "Ready" && x.status == "True")`
		}
		if right == "string" && strings.Contains(left, ".") {
			return "; select its fields with a dot"
		}
	case syntax.FuncSHA256:
		return "; it takes a text or bytes"
	case syntax.FuncDiff:
		return "; the arguments must be the same part of two objects, as in diff(oldObject.spec, object.spec)"
	case "@in":
		if strings.Contains(right, ".") {
			return "; check with has() whether the field exists"
		}
	case "_?_:_":
		if left != "bool" {
			return "; the condition must be true or false"
		}
		return "; both results must be of one type, or dyn(...) around one of them"
	}
	return ""
}

// The remedies for a comparison of a text with a number: the second if the text is a quantity.
const (
	numberOfText   = "; convert the text to a number with int() or double(), or put the number in quotes"
	quantityOfText = `; the text is a quantity: write quantity(A).isGreaterThan(quantity("100Mi")), or isLessThan or compareTo`
)

// besideQuantity reports whether an operand of the operator at a place is an amount of a resource,
// such as limits["memory"].
func besideQuantity(text string, line, column int) bool {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	runes := []rune(lines[line-1])
	column = min(max(0, column), len(runes))
	const amount = `\b(?:limits|requests|capacity|allocatable|hard|used)(?:\[\??["'][^"']*["']\]|\.\??\w+)(?:\.(?:orValue|value)\([^()]*\))?`
	return regexp.MustCompile(amount+`\s*$`).MatchString(string(runes[:column])) ||
		regexp.MustCompile(`^[=!<>]+\s*[\w.()\[\]]*?`+amount).MatchString(string(runes[column:]))
}

func remedyForComparison(left, right string) string {
	sides := []string{left, right}
	slices.Sort(sides)
	switch pair := strings.Join(sides, " "); {
	case slices.Contains(sides, "null"):
		return "; it is never null: check with has() whether it exists"
	case pair == "string timestamp":
		return `; convert the text to a time: timestamp("2006-01-02T15:04:05Z")`
	case pair == "int string", pair == "double string":
		return numberOfText
	case pair == "double int":
		return "; convert the int to a double with double(), or write it with a point"
	case pair == "bytes string":
		return "; convert the bytes to a text with string()"
	case pair == "bool string":
		return "; write true and false without quotes"
	}
	return ""
}
