package typeset

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// slip is a notation of another language, and its equivalent in CEL.
type slip struct {
	pattern *regexp.Regexp // in the text without the contents of strings and comments
	remedy  string
}

// slips are notations that are no syntax of CEL. In a text with a syntax error, the first match is
// probably the cause.
func slips() []slip {
	return []slip{
		{regexp.MustCompile(`\bnot +in\b`), "there is no `not in`; write !(value in list)"},
		{regexp.MustCompile(`=~`), `there is no =~; write text.matches("pattern")`},
		{regexp.MustCompile(`!~`), `there is no !~; write !text.matches("pattern")`},
		{regexp.MustCompile(`[=!]==`), "there is no === and no !==; compare with == and !="},
		{regexp.MustCompile(`<>`), "there is no <>; compare with !="},
		{regexp.MustCompile(`\bis +(not +)?(null|None|nil)\b`), "there is no `is`; check with has() whether a field exists"},
		{regexp.MustCompile(`[\w)\]"'] +(and|or) +[\w("'!]`), "join conditions with && and ||"},
		{regexp.MustCompile(`(^|[(&|\s])not +[\w(]`), "there is no `not`; write ! before the condition"},
		{regexp.MustCompile(`\{\{|\$\{|\\\(`), noTemplates},
	}
}

// noTemplates is the remedy for a text with placeholders in place of an expression.
const noTemplates = `an expression is CEL, which has no templates; put texts in quotes and join them with +, as in {"text": "pod " + object.metadata.name}`

// slipIn finds the first slip in a text with a syntax error.
func slipIn(text string) (celerr.Issue, bool) {
	lines := strings.Split(string(syntax.Bare([]rune(text))), "\n")
	for _, s := range slips() {
		for i, line := range lines {
			at := s.pattern.FindStringIndex(line)
			if at == nil {
				continue
			}
			start := at[0] + len(line[at[0]:at[1]]) - len(strings.TrimLeft(line[at[0]:at[1]], " \t(&|"))
			if word := regexp.MustCompile(`\b(and|or)\b`).FindStringIndex(line[start:at[1]]); word != nil && strings.Contains(s.remedy, "joined") {
				start += word[0]
			}
			return celerr.Issue{Line: i + 1, Column: len([]rune(line[:start])), Message: syntaxError + s.remedy}, true
		}
	}
	return celerr.Issue{}, false
}

var dottedKey = regexp.MustCompile(`\b(labels|annotations)\.([A-Za-z0-9_-]+(?:[./][A-Za-z0-9_-]+)+)`)

// keyWithDots finds a key of labels or annotations that is written like fields, around a place. It
// returns the correct notation.
func keyWithDots(text string, line, column int) string {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	for _, at := range dottedKey.FindAllStringSubmatchIndex(lines[line-1], -1) {
		from, to := len([]rune(lines[line-1][:at[0]])), len([]rune(lines[line-1][:at[1]]))
		if column >= from && column <= to {
			return fmt.Sprintf("%s[%q]", lines[line-1][at[2]:at[3]], lines[line-1][at[4]:at[5]])
		}
	}
	return ""
}

// insideOf has the fields of an object that are often taken for variables, each with its path.
func insideOf(name string) (where string, ok bool) {
	switch name {
	case "metadata", "spec", "status", "kind", "apiVersion", "data":
		return "object." + name, true
	case "labels", "annotations", "namespace", "name":
		return "object.metadata." + name, true
	}
	return "", false
}
