package budgets_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// server is an API server with pods of 5 KB, without sockets: a goroutine that waits for a socket
// would stop the fake clock. It allocates nothing while it sends updates.
type server struct {
	pod      []byte
	objects  int
	version  int
	requests chan int // numbers of updates to send
	listed   int      // watches with initial objects
	creates  bool     // each update is a new pod
}

func newServer(t *testing.T, objects int) *server {
	t.Helper()
	pod, err := os.ReadFile("../../pkg/informer/internal/wire/testdata/pod.json")
	must.Succeed(t, err)
	return &server{pod: bytes.TrimSpace(pod), objects: objects, version: objects, requests: make(chan int)}
}

// RoundTrip implements [http.RoundTripper].
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	switch path := r.URL.Path; {
	case path == "/api/v1":
		return answer(r, `{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}`), nil
	case path == "/api/v1/namespaces/kube-system":
		return answer(r, `{"kind":"Namespace","metadata":{"name":"kube-system","uid":"cluster"}}`), nil
	case path == "/api/v1/pods" && q.Get("watch") == "true":
		resp := answer(r, "")
		resp.Body = s.watch(r.Context(), q.Get("sendInitialEvents") == "true")
		return resp, nil
	case path == "/api/v1/pods":
		return answer(r, fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, firstVersion+s.version)), nil
	}
	return &http.Response{StatusCode: http.StatusNotFound, Status: "404 Not Found", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func answer(r *http.Request, body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// firstVersion is the version in the pod without its last digits.
const firstVersion = 1_000_000_000

// stream is the answer to a watch.
type stream struct {
	*server

	ctx        context.Context
	added      *frame
	modified   *frame
	initial    int // objects to send
	bookmarked bool
	left       int // updates to send
	rest       []byte
}

func (s *server) watch(ctx context.Context, initial bool) *stream {
	w := &stream{server: s, ctx: ctx, modified: newFrame("MODIFIED", s.pod), bookmarked: true}
	if w.added = newFrame("ADDED", s.pod); initial {
		w.initial, w.bookmarked = s.objects, false
		s.listed++
	}
	return w
}

// Read implements [io.Reader].
func (w *stream) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(w.rest) == 0 {
			w.next()
		}
		if len(w.rest) == 0 {
			if n > 0 {
				return n, nil
			}
			select {
			case w.left = <-w.requests:
			case <-w.ctx.Done():
				return 0, w.ctx.Err()
			}
			continue
		}
		k := copy(p[n:], w.rest)
		n, w.rest = n+k, w.rest[k:]
	}
	return n, nil
}

// next sets rest to the next frame, if there is one.
func (w *stream) next() {
	switch {
	case w.initial > 0:
		i := w.objects - w.initial
		w.initial--
		w.rest = w.added.fill(i, i, 0)
	case !w.bookmarked:
		w.bookmarked = true
		w.rest = fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", firstVersion+w.version)
	case w.left > 0:
		w.left--
		w.version++
		if w.creates {
			w.rest = w.added.fill(w.version, w.version, 0)
			return
		}
		w.rest = w.modified.fill(w.version%w.objects, w.version, w.version/w.objects)
	}
}

// Close implements [io.Closer].
func (w *stream) Close() error { return nil }

// frame is a watch event whose numbers can be replaced.
type frame struct {
	text                         []byte
	name, uid, version, restarts []byte // parts of text
}

func newFrame(kind string, pod []byte) *frame {
	f := &frame{text: fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, pod)}
	f.name, f.uid = f.part("-abcde", 1), f.part("2a5f8c6d1e90", 0)
	f.version, f.restarts = f.part("1000000042", 1), f.part(`"restartCount":0`, len(`"restartCount":`))
	return f
}

// part returns the bytes of a part of the text, without its first bytes.
func (f *frame) part(text string, without int) []byte {
	begin := bytes.Index(f.text, []byte(text))
	return f.text[begin+without : begin+len(text)]
}

// fill returns the text with these numbers, and with a number of restarts that differs from that of
// the version before. It is valid until the next call.
func (f *frame) fill(pod, version, restarts int) []byte {
	decimal(f.name, pod)
	decimal(f.uid, pod)
	decimal(f.version, version)
	decimal(f.restarts, restarts)
	return f.text
}

func decimal(into []byte, n int) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + n%10)
		n /= 10
	}
}
