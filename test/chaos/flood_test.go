package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// flood is an API server with nothing but ConfigMaps, which it changes at a rate.
type flood struct {
	*httptest.Server

	objects, rate int
	texts         []string // data of the ConfigMaps, in turns
	opened        chan struct{}
	began         time.Time       // set when opened is closed
	changes       atomic.Int64    // number of changes so far
	ctx           context.Context //nolint:containedctx // ends the changes
	end           context.CancelFunc
	sent          chan int // the number of changes, sent at the end
}

func newFlood(t *testing.T, objects, rate int) *flood {
	t.Helper()
	f := &flood{objects: objects, rate: rate, opened: make(chan struct{}), sent: make(chan int, 1)}
	for range 64 {
		f.texts = append(f.texts, incompressible(500))
	}
	f.ctx, f.end = context.WithCancel(t.Context())
	mux := http.NewServeMux()
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		}
	}
	mux.HandleFunc("GET /api", text(`{"kind":"APIVersions","versions":["v1"]}`))
	mux.HandleFunc("GET /apis", text(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
	mux.HandleFunc("GET /api/v1", text(`{"kind":"APIResourceList","groupVersion":"v1","resources":[`+
		`{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["get","list","watch"]}]}`))
	mux.HandleFunc("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			// The list has no items: the router needs only its resourceVersion.
			text(fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`,
				f.objects+int(f.changes.Load())))(w, r)
			return
		}
		f.watch(w, r)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() { f.end(); f.CloseClientConnections(); f.Close() })
	return f
}

func (f *flood) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 256<<10)
	flush := func() {
		_ = out.Flush()
		_ = http.NewResponseController(w).Flush()
	}
	frame := func(kind string, i, version int) {
		fmt.Fprintf(out, `{"type":%q,"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"m-%d",`+
			`"uid":"u-%d","resourceVersion":"%d"},"data":{"value":%q}}}`+"\n", kind, i, i, version, f.texts[version%len(f.texts)])
	}
	// The resourceVersion counts the changes, so that a resumed watch gets the later ones.
	n := number(r.URL.Query().Get("resourceVersion")) - f.objects
	if n < 0 {
		n = int(f.changes.Load())
		for i := range f.objects {
			version := i + 1
			if n > i { // the last change of this object
				version = f.objects + i + (n-1-i)/f.objects*f.objects + 1
			}
			frame("ADDED", i, version)
		}
	}
	fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
		`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", f.objects+n)
	flush()
	select {
	case <-f.opened:
	case <-r.Context().Done():
		return
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			select {
			case f.sent <- n:
			default: // a resumed watch, after the first one
			}
			<-r.Context().Done() // no change follows
			return
		case <-r.Context().Done():
			return
		}
		for due := int(time.Since(f.began).Seconds() * float64(f.rate)); n < due; n++ {
			frame("MODIFIED", n%f.objects, f.objects+n+1)
		}
		f.changes.Store(int64(n))
		flush()
	}
}

// open starts the changes.
func (f *flood) open() {
	f.began = time.Now()
	close(f.opened)
}

// stop ends the changes and returns their number.
func (f *flood) stop() int {
	f.end()
	return <-f.sent
}

// inFlight is the approximate number of deltas in the 16 MiB that a route may have on their way to
// the disk.
func (f *flood) inFlight() float64 { return 16 << 20 / 500 }

// kubeconfig returns the path of a kubeconfig for the server.
func (f *flood) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, f.URL)
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
