package sandboxtest

import (
	"fmt"
	"net/http"
	"time"
)

// Barren are the answers of barren watches, which are opened and bring nothing.
var Barren = []struct { //nolint:gochecknoglobals // a constant
	Name   string
	answer func(http.ResponseWriter, *http.Request)
}{
	{"end", func(http.ResponseWriter, *http.Request) {}},
	{"login page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<html>log in</html>")
	}},
	{"error", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"starting","reason":"TooManyRequests","code":429}}`)
	}},
	{"silence", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
	}},
}

// drought is the next streams of a watch that are barren.
type drought struct {
	streams int // negative: all
	answer  func(http.ResponseWriter, *http.Request)
}

// Dry makes the next streams of the watch of a namespace barren, all if the number is negative.
// kind is the place of one in [Barren].
func (p *Scissors) Dry(namespace string, streams, kind int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.droughts[namespace] = drought{streams, Barren[kind%len(Barren)].answer}
}

// answersBarren answers a watch if it is to be barren.
func (p *Scissors) answersBarren(w http.ResponseWriter, r *http.Request) bool {
	namespace := namespaceOf(r.URL.Path)
	p.mu.Lock()
	d := p.droughts[namespace]
	if d.streams != 0 {
		p.dried++
	}
	if d.streams > 0 {
		p.droughts[namespace] = drought{d.streams - 1, d.answer}
	}
	p.mu.Unlock()
	if d.streams == 0 {
		return false
	}
	d.answer(w, r)
	return true
}

// Dried returns the number of barren streams so far.
func (p *Scissors) Dried() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dried
}
