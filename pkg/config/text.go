package config

import (
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// expansion is ${NAME}, ${NAME:-default}, $${ (which is a plain ${), or a ${ that is none of these.
var expansion = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|\$\{`)

// text returns the scalar with its ${…} expanded. A problem has the place of the ${ that it is about, and quotes no variable's value.
func (n Node) text() (string, Problems) {
	if n.IsZero() {
		return "", Problems{n.Problemf("has no value: write one, or remove the key")}
	}
	if n.yaml.Kind != yaml.ScalarNode {
		return "", Problems{n.Problemf("must be text, not %s", n.describe())}
	}
	raw := n.yaml.Value
	var problems Problems
	var b strings.Builder
	last := 0
	for _, m := range expansion.FindAllStringSubmatchIndex(raw, -1) {
		b.WriteString(raw[last:m[0]])
		last = m[1]
		switch {
		case raw[m[0]:m[1]] == "$${":
			b.WriteString("${")
		case m[2] < 0:
			at := n.placeOf(utf8.RuneCountInString(raw[:m[0]]))
			problems = append(problems, n.problem(at, "has ${ without a variable: write ${NAME} or ${NAME:-default}, or $${ for the text ${"))
		default:
			value, ok := os.LookupEnv(raw[m[2]:m[3]])
			if m[4] >= 0 && value == "" {
				value, ok = raw[m[4]+len(":-"):m[5]], true
			}
			if !ok {
				at := n.placeOf(utf8.RuneCountInString(raw[:m[0]]))
				name := raw[m[2]:m[3]]
				problems = append(problems, n.problem(at, "environment variable "+name+" is not set: set it, or write ${"+name+":-default}"))
			}
			b.WriteString(value)
		}
	}
	b.WriteString(raw[last:])
	return b.String(), problems
}

// isQuoted reports whether a scalar is text whatever it looks like.
func (n Node) isQuoted() bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.yaml.Style&quoted != 0 || n.yaml.Style&yaml.TaggedStyle != 0 && n.yaml.Tag == "!!str"
}
