package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestCutAfterEachByte cuts watches after each byte of an event, many watches at a time. Every
// update must be delivered once and in order, without another list.
func TestCutAfterEachByte(t *testing.T) {
	t.Parallel()
	const watches, eventSize = 25, 500
	rounds := min(eventSize/watches, effort.Rounds(2, 4, eventSize/watches)) // at last all positions
	s := sandboxtest.Start(t)
	proxy := s.Scissors(t)
	var names []string
	for range watches {
		names = append(names, s.Namespace(t))
	}
	r := routertest.Start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, "["+strings.Join(names, ", ")+"]"))
	r.Ready(t)
	clients := make([]routertest.Objects, watches)
	for i, ns := range names {
		clients[i] = routertest.Use(t, s, routertest.ConfigMaps, ns)
		clients[i].Make(routertest.ConfigMap("a", "0"))
	}
	r.Wait(t, "the objects", func(events []routertest.Event) bool { return len(events) == watches })

	offset := rand.IntN(eventSize) //nolint:gosec // no secret
	for round := range rounds {
		for i, ns := range names {
			position := (offset + round*watches + i) % eventSize
			proxy.After(ns, position)
			// the cut is in one of the two
			clients[i].Change("a", fmt.Sprintf(`{"data":{"value":"%d-1"}}`, round))
			clients[i].Change("a", fmt.Sprintf(`{"data":{"value":"%d-2"}}`, round))
		}
		r.Wait(t, fmt.Sprintf("the updates of round %d, cut at %d and on", round, offset), func(events []routertest.Event) bool {
			return len(events) >= watches*(1+2*(round+1))
		})
		routertest.Poll(t, "all cuts", func() bool { return proxy.Cuts() == (round+1)*watches })
	}
	for _, ns := range names {
		var got, want []string
		for _, e := range routertest.About(r.Events(), ns+"/a") {
			got = append(got, valueOf(t, e, "object"))
		}
		want = append(want, "0")
		for round := range rounds {
			want = append(want, fmt.Sprintf("%d-1", round), fmt.Sprintf("%d-2", round))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", ns, got, want)
		}
	}
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 0 {
		t.Errorf("%v relists, want none: a watch that was cut goes on where it was", n)
	}
}

// TestCutInTheFirstList cuts the stream of initial events after many of its bytes. Each object must
// be delivered once, as initial.
func TestCutInTheFirstList(t *testing.T) {
	t.Parallel()
	const n, watches = 6, 30
	s := sandboxtest.Start(t)
	proxy := s.Scissors(t)
	var names []string
	for i := range watches {
		ns := s.Namespace(t)
		names = append(names, ns)
		createMany(t, s, ns, "m", n)
		proxy.After(ns, i*(n+1)*330/watches)
	}
	r := routertest.Start(t, proxy.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: [%s]}
routes:
  - {name: all, from: maps, existing: deliver, to: out}
`, strings.Join(names, ", ")))
	r.Ready(t)
	r.Wait(t, "all objects", func(events []routertest.Event) bool { return len(events) >= n*watches })
	var want []string
	for _, ns := range names {
		for i := range n {
			want = append(want, fmt.Sprintf("all added %s/m-%d", ns, i))
		}
		routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("after", "1"))
		want = append(want, "all added "+ns+"/after")
	}
	events := r.Expect(t, want...)
	routertest.Exactly(t, routertest.Summary(events), want)
	for _, e := range events {
		if initial := strings.Contains(string(e.Data), `"initial":true`); initial == strings.HasSuffix(e.Subject, "/after") {
			t.Errorf("%s: initial is %v", e, initial)
		}
	}
	if cuts := proxy.Cuts(); cuts < watches/2 {
		t.Errorf("%d cuts only", cuts)
	}
}

// TestCutUnderLoad cuts all connections at random moments while an object changes all the time.
func TestCutUnderLoad(t *testing.T) {
	// Guarantee: at-least-once
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	proxy := s.Proxy(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	r := routertest.Start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	const objects = 5
	for i := range objects {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m-%d", i), "0"))
	}
	done := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		n := 0
		for ok := true; ok && ctx.Err() == nil; n++ {
			_, err := maps.Patch(t.Context(), fmt.Sprintf("m-%d", n%objects), types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"value":"%d"}}`, n+1), metav1.PatchOptions{})
			ok = err == nil
		}
		done <- n
	}()
	for range effort.Rounds(4, 8, 160) {
		select {
		case <-time.After(time.Duration(rand.IntN(700)) * time.Millisecond): //nolint:gosec // no secret
		case <-ctx.Done():
		}
		proxy.Cut()
	}
	stop()
	n := <-done
	r.Wait(t, "all updates", func(events []routertest.Event) bool { return len(events) >= n+objects })
	for i := range objects {
		var got, want []string
		for _, e := range routertest.About(r.Events(), fmt.Sprintf("%s/m-%d", ns, i)) {
			got = append(got, valueOf(t, e, "object"))
		}
		want = append(want, "0")
		for v := i; v < n; v += objects {
			want = append(want, fmt.Sprint(v+1))
		}
		if !slices.Equal(got, want) {
			t.Errorf("m-%d: got %q, want %q", i, got, want)
		}
	}
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 0 {
		t.Errorf("%v relists, want none", n)
	}
}

// TestHalfOpenConnection makes the network drop its connections silently. The router must detect
// that by itself: over HTTP/2 with pings, which by default are sent after 30 s of silence and wait
// for 15 s; over HTTP/1.1 after 45 s of silence.
func TestHalfOpenConnection(t *testing.T) {
	// Guarantee: dead-connection
	t.Parallel()
	t.Run("HTTP 2", func(t *testing.T) {
		t.Parallel()
		if effort.Current() == effort.Fast {
			routertest.Setenv(t, "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
			routertest.Setenv(t, "HTTP2_PING_TIMEOUT_SECONDS", "2")
		}
		halfOpen(t)
	})
	t.Run("HTTP 1", func(t *testing.T) {
		t.Parallel()
		effort.AtLeast(t, effort.Full) // it takes a minute; TestHalfOpenWatch does not
		routertest.Setenv(t, "DISABLE_HTTP2", "yes")
		halfOpen(t)
	})
}

func halfOpen(t *testing.T) {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	hole := newBlackHole(t, s)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("same", "1"))
	r := routertest.Start(t, hole.kubeconfig, fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	maps.Make(routertest.ConfigMap("before", "1"))
	r.Expect(t, "all added "+ns+"/before")
	hole.freeze()
	began := time.Now()
	maps.Make(routertest.ConfigMap("meanwhile", "1"))
	maps.Remove("before")
	// longer than the patience of Expect
	for waiting := time.Tick(time.Second); time.Since(began) < 90*time.Second && len(r.Events()) < 3; {
		<-waiting
	}
	want := []string{"all added " + ns + "/before", "all added " + ns + "/meanwhile", "all deleted " + ns + "/before"}
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
	t.Logf("noticed after %v", time.Since(began).Round(100*time.Millisecond))
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 0 {
		t.Errorf("%v relists, want none", n)
	}
}

// TestHalfOpenWatch is TestHalfOpenConnection over HTTP/1.1 with a shorter timeout, which only the
// informer has as a parameter.
func TestHalfOpenWatch(t *testing.T) {
	// Guarantee: dead-connection
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	hole := newBlackHole(t, s)
	config, err := clientcmd.BuildConfigFromFlags("", hole.kubeconfig)
	must.Succeed(t, err)
	config.NextProtos = []string{"http/1.1"}
	client, err := informer.NewClientFor(config)
	must.Succeed(t, err)
	defer client.Close()
	seen := deltas{all: make(chan string, 100)}
	factory := informer.New(informer.Config{
		Client: client, Cluster: "test", Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: seen, Silence: 2 * time.Second,
	})
	factory.Watch(informer.Spec{Resource: routertest.ConfigMaps, Namespace: ns}, index.NewStore(), informer.Source{Name: "maps"})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { factory.Run(ctx) })
	defer running.Wait()
	defer stop()

	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("before", "1"))
	seen.want(t, "added", ns+"/before")
	hole.freeze()
	maps.Make(routertest.ConfigMap("meanwhile", "1"))
	maps.Remove("before")
	seen.want(t, "added", ns+"/meanwhile")
	seen.want(t, "deleted", ns+"/before")
}

// deltas is a downstream that reports deltas.
type deltas struct{ all chan string }

// Admit implements informer.Downstream.
func (d deltas) Admit(_ context.Context, delta *event.Delta) (event.Admission, error) {
	return event.CommitFunc(func() {
		if name := delta.Key().String(); !strings.HasSuffix(name, "/kube-root-ca.crt") {
			d.all <- delta.Op.String() + " " + name
		}
	}), nil
}

func (d deltas) want(t *testing.T, op, name string) {
	t.Helper()
	select {
	case got := <-d.all:
		if !strings.EqualFold(got, op+" "+name) {
			t.Errorf("got %s, want %s %s", got, op, name)
		}
	case <-time.After(routertest.Patience):
		t.Fatalf("waited in vain for %s %s", op, name)
	}
}
