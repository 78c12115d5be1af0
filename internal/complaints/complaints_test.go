package complaints_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/complaints"
)

// logger returns a Log, and a function that returns the lines since its last call.
func logger() (l *complaints.Log, lines func() []string) {
	var text buffer
	handler := slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return complaints.New(slog.New(handler)), func() []string {
		return strings.Split(strings.TrimSuffix(text.take(), "\n"), "\n")
	}
}

// buffer collects the lines of timers and of the test.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// after moves the clock, and compares the lines that were logged until then.
func after(t *testing.T, d time.Duration, lines func() []string, want ...string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if len(want) == 0 {
		want = []string{""}
	}
	if got := lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("after %s:\n%s\nwant:\n%s", d, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOutage: partitions of two routes that are lost for one reason have one line at once, and one
// at the end of each interval, with their number and the names of the routes.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logger()
		lose := func(n int, route string) {
			for i := range n {
				l.Say(slog.LevelWarn, "lost", fmt.Errorf("message #%d: read tcp 10.0.0.1:%d->10.0.0.2:4222: reset, %dms ago", i, 40000+i, i), slog.String("route", route))
			}
		}
		lose(16, "pods")
		lose(16, "nodes")
		after(t, 0, lines, `level=WARN msg=lost route=pods err="message #0: read tcp 10.0.0.1:40000->10.0.0.2:4222: reset, 0ms ago"`)
		after(t, 10*time.Second, lines,
			`level=WARN msg=lost route="nodes, pods" times=31 within=10s err="message #15: read tcp 10.0.0.1:40015->10.0.0.2:4222: reset, 15ms ago"`)
		lose(2, "nodes")
		after(t, 10*time.Second, lines)
		after(t, 10*time.Second, lines,
			`level=WARN msg=lost route=nodes times=2 within=20s err="message #1: read tcp 10.0.0.1:40001->10.0.0.2:4222: reset, 1ms ago"`)
		after(t, 40*time.Second, lines) // the reason is over
		lose(1, "nodes")
		after(t, time.Hour, lines, `level=WARN msg=lost route=nodes err="message #0: read tcp 10.0.0.1:40000->10.0.0.2:4222: reset, 0ms ago"`)
	})
}

// TestReasons: another message, error or attribute is another reason; Close logs the
// counted complaints.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logger()
		for range 2 {
			l.Say(slog.LevelWarn, "down", errors.New("status 503"), slog.Attr{}, slog.String("sink", "a"))
			l.Say(slog.LevelWarn, "down", errors.New("status 500"), slog.Attr{}, slog.String("sink", "a"))
			l.Say(slog.LevelWarn, "down", errors.New("status 503"), slog.Attr{}, slog.String("sink", "b"))
			l.Say(slog.LevelInfo, "up", nil, slog.Attr{}, slog.String("sink", "b"))
		}
		after(t, 0, lines, `level=WARN msg=down sink=a err="status 503"`, `level=WARN msg=down sink=a err="status 500"`,
			`level=WARN msg=down sink=b err="status 503"`, `level=INFO msg=up sink=b`)
		l.Say(slog.LevelInfo, "up", nil, slog.Attr{}, slog.String("sink", "b"))
		time.Sleep(time.Second)
		l.Close()
		if got := strings.Join(lines(), "\n"); strings.Count(got, "\n") != 3 || !strings.Contains(got, "msg=up sink=b times=2 within=10s") {
			t.Error(got)
		}
		l.Say(slog.LevelInfo, "up", nil, slog.Attr{})
		after(t, time.Hour, lines, "level=INFO msg=up")
	})
}

// TestFlood: a server that writes another text each time has a bounded number of lines, and a line
// a bounded number of names.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logger()
		for i := range 1000 {
			l.Say(slog.LevelWarn, "says", fmt.Errorf("x%d", i), slog.String("route", fmt.Sprint("r", i)))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := lines()
		if len(got) != 22 {
			t.Errorf("%d lines: %s", len(got), strings.Join(got, "\n"))
		}
		if last := got[21]; !strings.Contains(last, "times=979") || !strings.Contains(last, `, …"`) {
			t.Error(last)
		}
	})
}

func TestMay(t *testing.T) {
	l, _ := logger()
	now := time.Now()
	if !l.May("a", now) || l.May("a", now.Add(59*time.Second)) || !l.May("b", now) || !l.May("a", now.Add(time.Minute)) {
		t.Error("once a minute for each key")
	}
}
