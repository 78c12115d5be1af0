package config_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestExprProblem(t *testing.T) {
	tests := map[string]struct {
		yaml         string
		line, column int // in the expression
		want         string
	}{
		"plain":                {"k: a.b == ü.c", 1, 9, "1:13"},
		"plain, two lines":     {"k: a\n  .b\n   .c", 1, 6, "3:5"},
		"plain, second line":   {"k: a\n\n  .b", 2, 1, "3:4"},
		"anchor and tag":       {"k: &x !!str a.b", 1, 2, "1:15"},
		"anchor, next line":    {"k: &x # why\n  a.b", 1, 2, "2:5"},
		"single quotes":        {"k: 'a == ''b'' + c'", 1, 11, "1:18"},
		"double quotes":        {`k: "a == \"b\" + \u00fc + c"`, 1, 15, "1:27"},
		"double, escaped line": {"k: \"a + \\\n    b\"", 1, 4, "2:5"},
		"literal":              {"k: |\n  a\n    && b", 2, 5, "3:8"},
		"literal, chomped":     {"k: |-   # why\n\n  a\n\n  && b\n\n", 4, 3, "5:6"},
		"literal, indicator":   {"k: |1\n  a\n b", 1, 1, "2:3"},
		"folded":               {"k: >-\n  a\n  && b", 1, 5, "3:6"},
		"folded, more indent":  {"k: >\n  a\n    && b\n  c", 2, 2, "3:5"},
		"folded, paragraphs":   {"k: >+2\n  a\n\n  b\n\n", 2, 0, "4:3"},
		"windows":              {"k: |\r\n  a\r\n  b c\r\n", 2, 2, "3:5"},
		"end":                  {"k: a +", 1, 3, "1:7"},
		"beyond the line":      {"k: |\n  a +\n  b", 1, 99, "2:6"},
		"beyond the end":       {"k: a +", 7, 0, "1:7"},
		"before":               {"k: a +", 0, -3, "1:4"},
		"alias":                {"a: &e object.x\nk: *e", 1, 7, "1:14"},
		"bom":                  {"\ufeffk: abc", 1, 1, "1:5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := node(t, tt.yaml)
			var e config.Expr
			must.Succeed(t, root.At("k").Decode(&e).Err())
			p := e.Problem(tt.line, tt.column, "is wrong")
			if got, want := p.Error(), "config.yaml:"+tt.want+": k: is wrong"; got != want {
				t.Errorf("got  %s\nwant %s\nexpression %q", got, want, e.Text)
			}
		})
	}
}

func TestExprProblemWithoutNode(t *testing.T) {
	if got := (config.Expr{Text: "a"}).Problem(2, 3, "is wrong").Error(); got != ":2:4: is wrong" {
		t.Error(got)
	}
}

// TestExprPlaces writes random scalars in every style. Each character of the expression must be in
// the file at its reported position.
func TestExprPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := "# ü\nouter:\n  - first: {}\n    k: " + rapid.OneOf(
			plain(), quoted("'"), quoted(`"`), block("|"), block(">"),
		).Draw(t, "scalar") + "\n    last: 1\n"
		if rapid.Bool().Draw(t, "crlf") {
			source = strings.ReplaceAll(source, "\n", "\r\n")
		}
		root, problems := config.ParseNode("config.yaml", []byte(source))
		if err := problems.Err(); err != nil {
			t.Fatalf("%v\n%s", err, source)
		}
		var e config.Expr
		if err := root.At("outer").Items()[0].At("k").Decode(&e).Err(); err != nil {
			t.Fatalf("%v\n%s", err, source)
		}
		if found, of := checkPlaces(t, source, e); found < of {
			t.Errorf("%d of %d characters have a place\n%s", found, of, source)
		}
	})
}

// checkPlaces checks that each character of an expression is at its reported position, and that the
// positions ascend. It returns the number of characters with a position of their own, and the
// number of all characters, both without the first character and without white space.
func checkPlaces(t interface{ Errorf(string, ...any) }, source string, e config.Expr) (found, of int) {
	var lines [][]rune
	for line := range strings.SplitSeq(strings.TrimPrefix(source, "\ufeff"), "\n") {
		lines = append(lines, []rune(strings.TrimSuffix(line, "\r")))
	}
	start := e.Problem(1, 0, "")
	last := start
	line, column, first := 1, 0, true
	for _, r := range e.Text {
		p := e.Problem(line, column, "")
		if !unicode.IsSpace(r) && r != '\u00a0' {
			if !first {
				of++
			}
			if p != start || first {
				if !first {
					found++
				}
				if !first && (p.Line < last.Line || p.Line == last.Line && p.Column <= last.Column) {
					t.Errorf("%q at %d:%d of the expression comes before its predecessor: %d:%d\n%s", r, line, column, p.Line, p.Column, source)
				}
				if p != start && !isAt(lines, p, r) {
					t.Errorf("%q at %d:%d of the expression is not at %d:%d\n%s", r, line, column, p.Line, p.Column, source)
				}
			}
			last, first = p, false
		}
		column++
		if r == '\n' {
			line, column = line+1, 0
		}
	}
	return found, of
}

// isAt reports whether a character is at a position, literally or as an escape.
func isAt(lines [][]rune, p config.Problem, r rune) bool {
	if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1]) {
		return false
	}
	rest := lines[p.Line-1][p.Column-1:]
	if rest[0] == r {
		return true
	}
	if rest[0] != '\\' || len(rest) < 2 {
		return false
	}
	if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[rest[1]]; digits > 0 && len(rest) >= 2+digits {
		code, err := strconv.ParseUint(string(rest[2:2+digits]), 16, 32)
		return err == nil && rune(code) == r
	}
	return rest[1] == r || strings.ContainsRune("0abefv_NLP", rest[1])
}

const letters = "abcxyz.=<>()&|+ü漢😀"

// words generates words of letters and the characters of more.
func words(more string) *rapid.Generator[[]string] {
	word := rapid.StringOfN(rapid.RuneFrom([]rune(letters+more)), 1, 6, -1)
	return rapid.SliceOfN(word, 1, 8)
}

// joined joins words with white space that YAML folds: blanks, or line breaks with blanks around
// them.
func joined(t *rapid.T, words []string, indent string) string {
	space := rapid.SampledFrom([]string{" ", "  ", " \t ", "\n" + indent, " \n" + indent + "  ", "\n\n" + indent, "\n  \n\n" + indent})
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(space.Draw(t, "space"))
		}
		b.WriteString(w)
	}
	return b.String()
}

func properties(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "&a ", "!!str ", "&a !!str ", "!!str\n      ", "&b  # why\n\n      "}).Draw(t, "properties")
}

func plain() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := joined(t, words(`'"#\`).Draw(t, "words"), "      ")
		// A comment would end the scalar, and some characters cannot begin one.
		text = strings.NewReplacer(" #", " x", "\t#", "\tx", "\n#", "\nx").Replace("a" + text)
		return properties(t) + text
	})
}

func quoted(quote string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		list := words(`'"#\:,{}[]`).Draw(t, "words")
		for i, w := range list {
			if quote == "'" {
				list[i] = strings.ReplaceAll(w, "'", "''")
				continue
			}
			w = strings.ReplaceAll(strings.ReplaceAll(w, `\`, `\\`), `"`, `\"`)
			escape := rapid.SampledFrom([]string{"", `\u00fc`, `\x41`, `\U0001f600`, `\n`, `\t`, `\e`, "\\\n      ", "\\\n\n      ", " \\\n      \\ "})
			list[i] = w + escape.Draw(t, "escape")
		}
		edge := rapid.SampledFrom([]string{"", " ", "\n      "})
		text := edge.Draw(t, "before") + joined(t, list, "      ") + edge.Draw(t, "after")
		return properties(t) + quote + text + quote
	})
}

func block(indicator string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		indent := rapid.IntRange(1, 4).Draw(t, "indent")
		header := indicator
		explicit := rapid.Bool().Draw(t, "explicit")
		if explicit {
			header += strconv.Itoa(indent)
		}
		header += rapid.SampledFrom([]string{"", "-", "+"}).Draw(t, "chomping") + rapid.SampledFrom([]string{"", "  ", " # why"}).Draw(t, "comment")
		line := rapid.Custom(func(t *rapid.T) string {
			lead := rapid.SampledFrom([]string{"", "", "", " ", "   ", "\t"}).Draw(t, "lead")
			return lead + strings.Join(words(`'"#\:,{}[]-?*%@`).Draw(t, "words"), " ") + rapid.SampledFrom([]string{"", "", " "}).Draw(t, "trail")
		})
		blank := rapid.SampledFrom([]string{"", " ", "      "})
		lines := rapid.SliceOfN(rapid.OneOf(line, line, line, blank), 0, 6).Draw(t, "lines")
		// Without an indentation indicator the first line decides the indentation, so it begins
		// with a letter.
		first := "a" + line.Draw(t, "first")
		if explicit {
			first = line.Draw(t, "first")
		}
		text := header + strings.Repeat("\n", rapid.IntRange(0, 2).Draw(t, "blank")) + "\n"
		for i, l := range append([]string{first}, lines...) {
			if i > 0 {
				text += "\n"
			}
			if strings.TrimSpace(l) != "" || len(l) == 1 {
				text += strings.Repeat(" ", 4+indent)
			}
			text += l
		}
		return properties(t) + text
	})
}
