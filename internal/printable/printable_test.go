package printable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestLine(t *testing.T) {
	// Guarantee: no-terminal-escapes
	for text, want := range map[string]string{
		"":                            "",
		"default/web-0 größe 日本 🙂":    "default/web-0 größe 日本 🙂",
		"\x1b[2J\x1b]0;title\a":       `\u001b[2J\u001b]0;title\u0007`,
		"a\nlevel=ERROR\r\tb":         `a\nlevel=ERROR\r\tb`,
		"role\u202egnp.exe\u2066":     `role\u202egnp.exe\u2066`,
		"csi\u009b31m del\x7f":        `csi\u009b31m del\u007f`,
		"bad \xff utf-8":              `bad \ufffd utf-8`,
		"tag\U000e0041 private\ue000": `tag\udb40\udc41 private\ue000`,
		"line\u2028separator\u00ad":   `line\u2028separator\u00ad`,
		"a\u00a0space that shows":     "a\u00a0space that shows",
	} {
		if got := printable.Line(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// FuzzLine shows that the result contains only visible characters, and that JSON keeps its meaning.
func FuzzLine(f *testing.F) {
	// Guarantee: no-terminal-escapes
	f.Add("a\x1b\u202e\n\"\\b")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		if line := printable.Line(text); strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("%q", line)
		}
		var out bytes.Buffer
		encoder := json.NewEncoder(printable.Writer(&out))
		encoder.SetEscapeHTML(false)
		must.Succeed(t, encoder.Encode(text))
		if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("%q", &out)
		}
		var again string
		if err := json.Unmarshal(out.Bytes(), &again); err != nil || again != text {
			t.Errorf("%q became %q, %v", text, again, err)
		}
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := printable.Writer(&out)
	for _, text := range []string{"plain\n\ttext\n", "a\x1bb\n"} {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if got := out.String(); got != "plain\n\ttext\na\\u001bb\n" {
		t.Errorf("got %q", got)
	}
	if _, err := printable.Writer(failing{}).Write([]byte("\x1b")); err == nil {
		t.Error("an error is lost")
	}
}

func TestClean(t *testing.T) {
	for _, tt := range []struct {
		text        string
		most        int
		clean, kept string
	}{
		{"", 0, "", ""},
		{"größe 日本 🙂", 100, "größe 日本 🙂", "größe 日本 🙂"},
		{"a\tb\nc\r\u2028d", 100, "a b c  d", "a\tb\nc  d"},
		{"\x1b[2J\a\xff\u202ec\x7f", 100, "\ufffd[2J\ufffd\ufffd\ufffdc\ufffd", "\ufffd[2J\ufffd\ufffd\ufffdc\ufffd"},
		{"12345678", 8, "12345678", "12345678"},
		{"123456789", 8, "12345…", "12345…"},
		{"123456éé", 8, "12345…", "12345…"},
		{"1234éé", 7, "1234…", "1234…"},
		{"\xff\xff\xff", 8, "\ufffd…", "\ufffd…"}, // it grows
		{"1234", 3, "…", "…"},
		{"1234", 2, "", ""},
	} {
		if got := printable.Clean(tt.text, tt.most); got != tt.clean {
			t.Errorf("%q in %d bytes: %q, want %q", tt.text, tt.most, got, tt.clean)
		}
		if got := printable.Text([]byte(tt.text), tt.most); got != tt.kept {
			t.Errorf("%q in %d bytes, with lines: %q, want %q", tt.text, tt.most, got, tt.kept)
		}
	}
}

// FuzzClean shows that the result is bounded, valid and on one line, and that cleaning it again
// does not change it.
func FuzzClean(f *testing.F) {
	f.Add("é\x1b\u202e\n", 7)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most &= 0xfff
		got := printable.Clean(text, most)
		if len(got) > most || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\u202e") {
			t.Errorf("%q", got)
		}
		if again := printable.Clean(got, most); again != got {
			t.Errorf("%q, and then %q", got, again)
		}
		if printable.IsPlain(text) && len(text) <= most && got != text {
			t.Errorf("%q is plain, and becomes %q", text, got)
		}
	})
}
