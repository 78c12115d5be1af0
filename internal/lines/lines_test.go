package lines_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// logTo returns a log without times.
func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestLines shows that each written line becomes a log line, cut and clean, that blank ones are
// left out, and that the last one needs no line end.
func TestLines(t *testing.T) {
	var b bytes.Buffer
	w := lines.New(logTo(&b), 100, 8).Writer(t.Context(), "stdout", slog.LevelInfo)
	for _, piece := range []string{"on", "e\r\ntwo\n", "\n \r\n", "123456789", "0123456789", "\n12345678\n", "\x1b[\xff\n", "last"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	w.Flush()
	w.Flush()
	want := ""
	for _, text := range []string{`one`, `two`, `12345…`, `12345678`, "\"\uFFFD[\uFFFD\"", `last`} {
		want += `level=INFO msg="handler says" from=stdout text=` + text + "\n"
	}
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestRate shows that the lines per second are bounded, and that the number of suppressed lines is
// logged in the next second or on request.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := lines.New(logTo(&b), 2, 8)
		say := func(n int) {
			for range n {
				l.Line(t.Context(), slog.LevelWarn, "log", []byte("x"))
				l.Line(t.Context(), slog.LevelDebug, "log", []byte("nobody logs it, nobody counts it"))
			}
		}
		say(5)
		<-time.After(time.Second)
		say(3)
		l.Report()
		l.Report()
		const line = `level=WARN msg="handler says" from=log text=x` + "\n"
		left := func(n string) string {
			return `level=WARN msg="handler says too much, lines left out" lines=` + n + " limit_per_second=2\n"
		}
		if want := line + line + left("3") + line + line + left("1"); b.String() != want {
			t.Errorf("got\n%swant\n%s", b.String(), want)
		}
	})
}

// FuzzWriter shows that any input in any pieces becomes clean lines of bounded length.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n\x00"), 1)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		var b bytes.Buffer
		w := lines.New(logTo(&b), 1<<30, 16).Writer(t.Context(), "stderr", slog.LevelInfo)
		for piece = max(1, piece%7); len(text) > 0; {
			n, err := w.Write(text[:min(piece, len(text))])
			must.Succeed(t, err)
			text = text[n:]
		}
		w.Flush()
		for line := range strings.Lines(b.String()) {
			if len(line) > 300 || !utf8.ValidString(line) || strings.ContainsRune(line, '\x1b') {
				t.Errorf("%q", line)
			}
		}
	})
}
