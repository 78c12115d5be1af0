package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestPaint(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a device, but no terminal
	must.Succeed(t, err)
	defer func() { must.Report(t, null.Close()) }()
	for _, c := range []struct {
		w     io.Writer
		mode  string
		color Color
		want  string
	}{
		{&bytes.Buffer{}, ColorAuto, Red, "x"},
		{null, ColorAuto, Red, "x"},
		{null, always, Red, "\x1b[31mx\x1b[0m"},
		{null, always, "", "x"},
		{null, never, Red, "x"},
	} {
		if got := NewPaint(c.w, c.mode).Text(c.color, "x"); got != c.want {
			t.Errorf("%T, %s: got %q, want %q", c.w, c.mode, got, c.want)
		}
	}
	if got := (Paint{on: true}).Text(Red, ""); got != "" {
		t.Errorf("an empty text becomes %q", got)
	}
}

// TestProgress: the line appears after two seconds, says how far it is, gives way to other output
// and is erased at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logged.Buffer
		next := func(d time.Duration) string {
			out.Reset()
			time.Sleep(d)
			synctest.Wait()
			return out.String()
		}
		p := start(&out, 40, "replay\n x")
		if got := next(1900 * time.Millisecond); got != "" {
			t.Errorf("after 1.9 s: %q", got)
		}
		if got := next(200 * time.Millisecond); got != erase+`replay\n x: 2s` {
			t.Errorf("after 2.1 s: %q", got)
		}
		p.Done(1, 4)
		if got := next(2 * time.Second); !strings.HasSuffix(got, erase+`replay\n x: 25 %, 4s, about 12s left`) {
			t.Errorf("after 4.1 s: %q", got)
		}
		out.Reset()
		_, err := io.WriteString(p.Writer(&out), "line\n")
		must.Succeed(t, err)
		if got := out.String(); got != erase+"line\n" {
			t.Errorf("other output: %q", got)
		}
		p.What(strings.Repeat("long ", 10))
		p.Done(1, 100)
		if got := next(500 * time.Millisecond); got != erase+strings.Repeat("long ", 7)+"lon…" {
			t.Errorf("cut: %q", got)
		}
		p.What("record")
		p.Lasts(10 * time.Second)
		if got := next(500 * time.Millisecond); got != erase+"record: 5s of 10s, 5s left" {
			t.Errorf("of a known length: %q", got)
		}
		if IsTerminal(p.Writer(&out)) {
			t.Error("a buffer below is taken for a terminal")
		}
		out.Reset()
		p.Stop()
		p.Stop()
		if got := out.String(); got != erase {
			t.Errorf("at the end: %q", got)
		}
		if got := next(time.Minute); got != "" {
			t.Errorf("after the end: %q", got)
		}
	})
}

// TestNoProgress: nothing is shown of a short operation, nor anywhere but on a terminal.
func TestNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := start(&out, 0, "test")
		time.Sleep(progressAfter - 1)
		p.Stop()
		if out.Len() > 0 {
			t.Errorf("a short one: %q", &out)
		}
	})
	var out bytes.Buffer
	p := StartProgress(&out, "test")
	p.What("more")
	p.Done(1, 2)
	if p != nil || p.Writer(&out) != io.Writer(&out) {
		t.Error("a buffer is no terminal")
	}
	p.Stop()
}
