package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	progressAfter = 2 * time.Second        // shorter operations show nothing
	progressEvery = 500 * time.Millisecond // between two looks of the line
	// With less than this part done, the time left is a guess.
	progressLeastPart = 0.02
	defaultWidth      = 80
)

// erase moves to the begin of the line and erases it.
const erase = "\r\x1b[K"

// Progress is a line at the end of a terminal about an operation: its name, the part that is done,
// and the time left. It appears when the operation takes longer than two seconds. A nil Progress shows
// nothing. It is safe for concurrent use.
type Progress struct {
	out   io.Writer
	width int
	begun time.Time
	end   chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	what  string
	done  int64
	total int64         // 0: unknown
	lasts time.Duration // 0: unknown
	shown bool
}

// StartProgress begins an operation. It returns nil if w is no terminal. The caller calls Stop.
func StartProgress(w io.Writer, what string) *Progress {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !IsTerminal(w) {
		return nil
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = defaultWidth
	}
	return start(w, width, what)
}

func start(w io.Writer, width int, what string) *Progress {
	p := &Progress{out: w, width: width, begun: time.Now(), what: what, end: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

func (p *Progress) run() {
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
			p.show()
			wait.Reset(progressEvery)
		case <-p.end:
			return
		}
	}
}

// What changes the text about the operation.
func (p *Progress) What(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = text
}

// Done sets how much is done, of a total; 0: the total is not known.
func (p *Progress) Done(done, total int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, total
}

// Lasts sets how long the operation takes, if that is known beforehand.
func (p *Progress) Lasts(d time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lasts = d
}

// Stop erases the line. It may be called several times.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	p.mu.Unlock()
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

// Writer returns a writer to w that erases the line before it writes. Use it for all output to the
// terminal while the operation runs.
func (p *Progress) Writer(w io.Writer) io.Writer {
	if p == nil {
		return w
	}
	return &over{p, w}
}

type over struct {
	progress *Progress
	out      io.Writer
}

// Fd returns the descriptor of the writer below, so that [IsTerminal] knows a terminal. If that has none,
// the descriptor is not valid.
func (o *over) Fd() uintptr {
	if f, ok := o.out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Write implements io.Writer.
func (o *over) Write(b []byte) (int, error) {
	o.progress.mu.Lock()
	defer o.progress.mu.Unlock()
	o.progress.erase()
	return o.out.Write(b)
}

// erase removes the line. The caller holds mu.
func (p *Progress) erase() {
	if p.shown {
		p.shown = false
		_, _ = io.WriteString(p.out, erase)
	}
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = true
	_, _ = io.WriteString(p.out, erase+cut(p.line(time.Since(p.begun)), p.width-1))
}

// line describes the operation after some time.
func (p *Progress) line(passed time.Duration) string {
	text := fmt.Sprintf("%s: %s", printable.Line(p.what), passed.Round(time.Second))
	if p.lasts > 0 {
		return fmt.Sprintf("%s of %s, %s left", text, p.lasts, max(p.lasts-passed, 0).Round(time.Second))
	}
	if p.total <= 0 || p.done <= 0 {
		return text
	}
	part := min(float64(p.done)/float64(p.total), 1)
	text = fmt.Sprintf("%s: %d %%, %s", printable.Line(p.what), int(part*100), passed.Round(time.Second))
	if part >= progressLeastPart {
		left := time.Duration(float64(passed) * (1 - part) / part)
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return text
}

// cut keeps a text on one line of the terminal.
func cut(text string, most int) string {
	if most < 1 || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
