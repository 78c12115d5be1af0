package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const pageSize = 7

// recorder is a downstream that records deltas.
type recorder struct {
	mu     sync.Mutex
	deltas []string
}

func (r *recorder) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	return event.CommitFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deltas = append(r.deltas, d.Op.String()+" "+d.Key().Name)
	}), nil
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deltas)
}

// lists is a transport that counts fetched pages, and stops at one of them.
type lists struct {
	http.RoundTripper

	pages   atomic.Int64
	stopAt  int64
	stopped chan struct{} // closed at that page
	resume  chan struct{} // closed by the test to go on
}

func (l *lists) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("limit") && strings.HasSuffix(r.URL.Path, "/configmaps") {
		if l.pages.Add(1) == l.stopAt {
			close(l.stopped)
			<-l.resume
		}
	}
	return l.RoundTripper.RoundTrip(r)
}

// TestPages lists many objects in pages of seven. In the second run a continue token expires
// during the list, which then begins again.
func TestPages(t *testing.T) {
	t.Parallel()
	n := effort.Rounds(500, 2000, 2000)
	// The watch cache answers the Reflector's first list as a whole, whatever its limit.
	s := sandboxtest.New(t, sandboxtest.Options{APIServerArgs: []string{"--watch-cache=false"}})
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for i := range n {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m-%d", i), "1"))
	}
	t.Run("undisturbed", func(t *testing.T) {
		l := listInPages(t, s, ns, n, func() {})
		if pages := int(l.pages.Load()); pages < n/pageSize {
			t.Errorf("%d pages for %d objects", pages, n)
		}
	})
	t.Run("expired token", func(t *testing.T) {
		l := listInPages(t, s, ns, n, func() {
			// The list of the token is history now, which the API server has dropped.
			maps.Make(routertest.ConfigMap("x-1", "1"))
			maps.Make(routertest.ConfigMap("x-2", "1"))
			s.CompactEtcd(t)
		})
		// client-go's pager requests the rest of such a list as one page, or all of it again.
		if pages := int(l.pages.Load()); pages >= n/pageSize {
			t.Errorf("%d pages: the token did not expire", pages)
		}
	})
}

// listInPages runs a watch until it has synced, disturbs it at the 20th page, and compares its
// deltas and its cache with the cluster.
func listInPages(t *testing.T, s *sandboxtest.Sandbox, ns string, n int, disturb func()) *lists {
	t.Helper()
	l := &lists{stopAt: 20, stopped: make(chan struct{}), resume: make(chan struct{})}
	config := rest.CopyConfig(s.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { l.RoundTripper = next; return l })
	client, err := informer.NewClientFor(config)
	must.Succeed(t, err)
	defer client.Close()
	var seen recorder
	store := index.NewStore()
	factory := informer.New(informer.Config{
		Client: client, Cluster: "test", Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: &seen, PageSize: pageSize,
	})
	factory.Watch(informer.Spec{Resource: routertest.ConfigMaps, Namespace: ns}, store, informer.Source{Name: "maps"})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { factory.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-l.stopped
	disturb()
	close(l.resume)
	routertest.Poll(t, "the list", func() bool { status, _ := factory.Status("maps"); return status.Synced })

	count := make(map[string]int)
	for _, d := range seen.all() {
		if strings.HasPrefix(d, "added m-") {
			count[d]++
		}
	}
	if got := slices.Max(slices.Collect(maps.Values(count))); len(count) != n || got != 1 {
		t.Errorf("%d objects, one of them %d times; want each of %d once", len(count), got, n)
	}
	kept := 0
	for o := range store.All() {
		if strings.HasPrefix(o.Key().Name, "m-") {
			kept++
		}
	}
	if kept != n {
		t.Errorf("%d objects in the store, want %d", kept, n)
	}
	return l
}
