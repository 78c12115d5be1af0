package chaos

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// The answers of barren watches, which are opened and bring nothing.
var barren = []struct { //nolint:gochecknoglobals // a constant
	name   string
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

// dry makes the next streams of the watch of a namespace barren, all if the number is negative.
// kind is one of the answers.
func (p *scissors) dry(namespace string, streams, kind int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.droughts[namespace] = drought{streams, barren[kind%len(barren)].answer}
}

// answersBarren answers a watch if it is to be barren.
func (p *scissors) answersBarren(w http.ResponseWriter, r *http.Request) bool {
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

// barrenFor makes changes that no stream brings: the watch is cut, its next stream opens after the
// changes, and all are barren until met returns "". The reason must be a list. Before, met returns
// "" because the watch is open.
func (p *scissors) barrenFor(t *testing.T, r *routertest.Router, namespace string, kind int, changes func(), met func() string) {
	t.Helper()
	wait(t, "the last state before the streams are barren", met)
	const stalled = `deltarouter_source_relists_total{reason="stalled",source="maps"}`
	before := r.Metric(t, stalled)
	func() {
		p.opening.Lock()
		defer p.opening.Unlock()
		p.after(namespace, 0)
		p.dry(namespace, -1, kind)
		changes()
	}()
	wait(t, "the last state, while each stream is barren: "+barren[kind%len(barren)].name, met)
	if r.Metric(t, stalled) == before {
		t.Errorf("%s: the last state came without a list", barren[kind%len(barren)].name)
	}
	p.dry(namespace, 0, 0)
}
