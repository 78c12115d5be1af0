package cases

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errBraces = errors.New("is written in braces and cannot be updated: write it as an indented block")

// rewrite replaces the value of `expect` in the text of a file, or adds it if the case has none.
// All other text stays unchanged.
func (t *testCase) rewrite(lines, expect []string) ([]string, error) {
	from, indentation, err := t.place(lines)
	if err != nil {
		return nil, err
	}
	first, last := from, endOf(lines, max(0, from), indentation)
	if indentation < 0 { // the case has no expect
		indentation = t.Node.Problemf("").Column - 1
		first = t.end(lines, indentation)
		last = first
	}
	margin := strings.Repeat(" ", indentation)
	before := margin
	if first == from && last > from { // the key may be on the line of the dash
		before = string([]rune(lines[from])[:indentation])
	}
	fresh := []string{before + "expect: " + nothing}
	if len(expect) > 0 {
		fresh[0] = before + "expect:"
		for _, line := range expect {
			fresh = append(fresh, margin+"  "+line)
		}
	}
	return slices.Concat(lines[:first], fresh, lines[last:]), nil
}

// place returns the line of the key `expect` and its indentation, which is negative if there is no
// such key.
func (t *testCase) place(lines []string) (line, indentation int, err error) {
	at := t.Node.Problemf("")
	if at.Line > len(lines) || strings.HasPrefix(string([]rune(lines[at.Line-1])[at.Column-1:]), "{") {
		return 0, 0, fmt.Errorf("case %q %w", t.Name, errBraces)
	}
	if !slices.Contains(t.Node.Keys(), "expect") {
		return -1, -1, nil
	}
	value := t.Node.At("expect").Problemf("")
	for i := min(value.Line, len(lines)) - 1; i >= at.Line-1; i-- {
		text := strings.TrimPrefix(strings.TrimLeft(lines[i], " "), "- ")
		if strings.HasPrefix(strings.TrimLeft(text, " "), "expect:") {
			return i, strings.Index(lines[i], "expect:"), nil
		}
	}
	return 0, 0, fmt.Errorf("case %q: its expect cannot be found in the text: write it in the case itself", t.Name)
}

// end returns the line after the case.
func (t *testCase) end(lines []string, indentation int) int {
	return endOf(lines, t.Node.Problemf("").Line-1, indentation-1)
}

// endOf returns the line after a block that begins at from and whose key has the given indentation.
// Blank lines and comments after the block do not belong to it.
func endOf(lines []string, from, indentation int) int {
	end := from + 1
	for i := from + 1; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		depth := len(lines[i]) - len(text)
		switch {
		case strings.TrimSpace(text) == "" || text[0] == '#' && depth <= indentation:
			continue
		case depth > indentation, depth == indentation && (strings.HasPrefix(text, "- ") || text[0] == ']'):
			end = i + 1
		default:
			return end
		}
	}
	return end
}
