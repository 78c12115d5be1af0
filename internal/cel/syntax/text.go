package syntax

import (
	"slices"
	"strings"
	"unicode"
)

// OneLine joins the lines of a text.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Bare returns the text of a valid expression with comments replaced by spaces, and the contents of
// strings by quotes.
func Bare(text []rune) []rune {
	out := slices.Clone(text)
	for i := 0; i < len(text); {
		end := i + 1
		switch {
		case text[i] == '"' || text[i] == '\'':
			end = endOfString(text, i)
			fill(out[i:end], text[i])
		case strings.HasPrefix(string(text[i:min(i+2, len(text))]), "//"):
			for end < len(text) && text[end] != '\n' {
				end++
			}
			fill(out[i:end], ' ')
		}
		i = end
	}
	return out
}

func fill(text []rune, r rune) {
	for i := range text {
		text[i] = r
	}
}

// endOfString returns the end of the string whose quotes begin at i.
func endOfString(text []rune, i int) int {
	quote := text[i : i+1]
	if i+2 < len(text) && text[i+1] == text[i] && text[i+2] == text[i] {
		quote = text[i : i+3]
	}
	raw := false
	for j := i - 1; j >= max(0, i-2) && strings.ContainsRune("rRbB", text[j]); j-- {
		raw = raw || text[j] == 'r' || text[j] == 'R'
	}
	for j := i + len(quote); j < len(text); j++ {
		switch {
		case text[j] == '\\' && !raw:
			j++
		case slices.Equal(text[j:min(j+len(quote), len(text))], quote):
			return j + len(quote)
		}
	}
	return len(text)
}

// StartOfChain returns the start of the chain with a dot at i. The text has no strings and
// comments, see Bare.
func StartOfChain(text []rune, i int) int {
	for i > 0 {
		j := i - 1
		for text[i] == '.' && j > 0 && unicode.IsSpace(text[j]) {
			j--
		}
		switch c := text[j]; {
		case strings.ContainsRune(")]}", c):
			for depth := 0; j >= 0; j-- {
				if strings.ContainsRune(")]}", text[j]) {
					depth++
				} else if strings.ContainsRune("([{", text[j]) {
					depth--
				}
				if depth == 0 {
					break
				}
			}
		case c == '_' || c == '.' || c == '?' || c == '"' || c == '\'' || unicode.IsLetter(c) || unicode.IsDigit(c):
		default:
			return i
		}
		i = max(0, j)
	}
	return i
}

// EndOfStep returns the end of the last step of a chain, whose dot or bracket is at i; -1 if the
// text does not show it.
func EndOfStep(text []rune, i int) int {
	switch {
	case i >= len(text):
		return -1
	case text[i] == '.':
		for i++; i < len(text) && (text[i] == ' ' || text[i] == '\t'); i++ {
		}
		for i < len(text) && (text[i] == '_' || text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z') {
			i++
		}
		return i
	case text[i] == '[':
		quotes := Bare(text)
		depth := 0
		for ; i < len(text); i++ {
			switch quotes[i] {
			case '[':
				depth++
			case ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	return -1
}

// AfterDot finds the name behind the dot that cel-go reports as the place of a selection.
func AfterDot(text string, line, column int) (nameLine, nameColumn int) {
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
