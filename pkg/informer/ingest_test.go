package informer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// canned answers discovery, and a watch with initial events by 1000 pods and the requested number
// of updates.
type canned struct {
	pod     []byte
	updates int
}

func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	if kindOf(r) == "DISCOVERY" {
		resp.Body = io.NopCloser(strings.NewReader(`{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}`))
		return resp, nil
	}
	resp.Body = &cannedBody{canned: c, ctx: r.Context()}
	return resp, nil
}

const cannedPods = 1000

type cannedBody struct {
	*canned

	ctx           context.Context
	n             int
	rest          []byte
	kind          string
	text          []byte
	name, version int
}

func (b *cannedBody) Close() error { return nil }

func (b *cannedBody) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(b.rest) == 0 && !b.next() {
			if n == 0 {
				<-b.ctx.Done()
				return 0, b.ctx.Err()
			}
			return n, nil
		}
		k := copy(p[n:], b.rest)
		n, b.rest = n+k, b.rest[k:]
	}
	return n, nil
}

// next makes the next frame.
func (b *cannedBody) next() bool {
	b.n++
	i := b.n - 1
	switch {
	case i < cannedPods:
		b.frame("ADDED", i, i)
	case i == cannedPods:
		b.rest = []byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1000001000","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	case i <= cannedPods+b.updates:
		b.frame("MODIFIED", i%cannedPods, i)
	default:
		return false
	}
	return true
}

// frame sets the numbers, which have a fixed width, so that making the stream costs little.
func (b *cannedBody) frame(kind string, pod, version int) {
	if b.kind != kind {
		b.kind = kind
		b.text = fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, b.pod)
		b.name, b.version = bytes.Index(b.text, []byte("-abcde")), bytes.Index(b.text, []byte("1000000042"))
	}
	digits(b.text[b.name+1:b.name+6], pod)
	digits(b.text[b.version+1:b.version+10], version)
	b.rest = b.text
}

func digits(into []byte, n int) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + n%10)
		n /= 10
	}
}

// counting is a Downstream that signals the n-th delta.
type counting struct {
	left atomic.Int64
	done chan struct{}
}

func (c *counting) Admit(context.Context, *event.Delta) (event.Admission, error) {
	return event.CommitFunc(func() {
		if c.left.Add(-1) == 0 {
			close(c.done)
		}
	}), nil
}

// BenchmarkIngest measures the path from the response body, without the network, through the
// Reflector into a map: CPU of all goroutines per update of a pod of 5 KB, and the memory per pod;
// without a checkpoint, and with the changes for one collected every 100 ms.
func BenchmarkIngest(b *testing.B) {
	b.Run("memory", func(b *testing.B) { ingest(b, nil) })
	b.Run("checkpoint", func(b *testing.B) {
		onDisk := make(chan struct{})
		close(onDisk)
		ingest(b, func(string, *event.Object) <-chan struct{} { return onDisk })
	})
}

func ingest(b *testing.B, gate func(string, *event.Object) <-chan struct{}) {
	b.Helper()
	pod, err := os.ReadFile("internal/wire/testdata/pod.json")
	must.Succeed(b, err)
	transport := &canned{pod: bytes.TrimSpace(pod), updates: b.N}
	client, err := informer.NewClientFor(&rest.Config{Host: "http://localhost", Transport: transport})
	must.Succeed(b, err)
	down := &counting{done: make(chan struct{})}
	down.left.Store(int64(cannedPods + b.N))
	f := informer.New(informer.Config{
		Client: client, Cluster: "test", Metrics: metrics.New(), Downstream: down, Log: slog.New(slog.DiscardHandler), Gate: gate,
	})
	spec := informer.Spec{}
	spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
	f.Watch(spec, newMemory(), informer.Source{Name: "pods"})
	ctx, cancel := context.WithCancel(b.Context())
	stopped := make(chan struct{})
	b.ReportAllocs()
	before := cpu(b)
	b.ResetTimer()
	go func() { defer close(stopped); f.Run(ctx) }()
	if gate != nil {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for left := true; left; {
			select {
			case <-tick.C:
				f.BeginCut().End()
				f.Saved()
			case <-down.done:
				left = false
			}
		}
	}
	<-down.done
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N+cannedPods), "cpu-ns/op")
	cancel()
	<-stopped
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// An object that is nested too deeply does not hide from rules: its identity and labels arrive with
// an annotation that says why the rest is missing. Its next readable state is an update.
func TestNestedTooDeep(t *testing.T) {
	// Guarantee: deep-object
	deep := `,"spec":` + strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/deep", "web", deep)
			a.put("default/good", "web")
			o := options{config: config}
			o.spec.Drop = "metadata.annotations"
			r := syncedRig(t, a, o)
			r.sink.want(t, true, "added pods default/deep initial", "added pods default/good initial")
			const want = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"deep","namespace":"default","uid":"uid-1","resourceVersion":"101","labels":{"app":"web"},` +
				`"annotations":{"deltarouter.io/unreadable":"nested deeper than 512 levels"}}}`
			stored := r.store.Get(event.Key{Namespace: "default", Name: "deep"})
			if got := string(stored.JSON()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			a.put("default/good", "db", deep)
			a.put("default/good", "web")
			r.sink.want(t, false, "updated pods default/good", "updated pods default/good")
			a.put("default/good", "db", deep)
			a.delete("default/good")
			r.sink.want(t, false, "updated pods default/good", "deleted pods default/good stale")
			if got := r.metric("source_object_errors_total"); got != 4 {
				t.Errorf("source_object_errors_total = %v, want 4", got)
			}
			a.compact()
			a.dropWatches()
			a.put("default/last", "web")
			// an unchanged object causes no delta
			r.sink.want(t, false, "added pods default/last")
		})
	}
}
