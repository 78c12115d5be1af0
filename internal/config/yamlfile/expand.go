package yamlfile

import (
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// expansion is ${NAME}, ${NAME:-default}, $${ (which is a plain ${), or a ${ that is none of these.
var expansion = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|\$\{`)

// Failure is a mistake in a ${ of a text.
type Failure struct {
	Index   int // of the ${, in characters from 0
	Message string
}

// Expand expands each ${…} of a text. Messages never contain the value of a variable.
func Expand(raw string) (text string, failed []Failure) {
	var b strings.Builder
	last := 0
	for _, m := range expansion.FindAllStringSubmatchIndex(raw, -1) {
		b.WriteString(raw[last:m[0]])
		last = m[1]
		index := utf8.RuneCountInString(raw[:m[0]])
		switch {
		case raw[m[0]:m[1]] == "$${":
			b.WriteString("${")
		case m[2] < 0:
			failed = append(failed, Failure{index, "has ${ without a variable: write ${NAME} or ${NAME:-default}, or $${ for the text ${"})
		default:
			name := raw[m[2]:m[3]]
			value, ok := os.LookupEnv(name)
			if m[4] >= 0 && value == "" {
				value, ok = raw[m[4]+len(":-"):m[5]], true
			}
			if !ok {
				failed = append(failed, Failure{index, "environment variable " + name + " is not set: set it, or write ${" + name + ":-default}"})
			}
			b.WriteString(value)
		}
	}
	b.WriteString(raw[last:])
	return b.String(), failed
}
