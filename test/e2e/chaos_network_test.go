package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestCutAfterEachByte cuts watches after each byte of an event, many watches at a time: every update is delivered once, in order, and
// nothing is listed again.
func TestCutAfterEachByte(t *testing.T) {
	const watches, eventSize = 25, 500
	rounds := min(eventSize/watches, scaled(t, 3)) // all positions in the long form
	s := sandboxtest.Start(t)
	proxy := newScissors(t, s)
	var names []string
	for range watches {
		names = append(names, s.Namespace(t))
	}
	r := start(t, proxy.kubeconfig, fmt.Sprintf(watchConfigMaps, "["+strings.Join(names, ", ")+"]"))
	r.ready(t)
	clients := make([]objects, watches)
	for i, ns := range names {
		clients[i] = use(t, s, configMaps, ns)
		clients[i].create(configMap("a", "0"))
	}
	r.wait(t, "the objects", func() bool { return len(r.events) == watches })

	offset := rand.IntN(eventSize) //nolint:gosec // no secret
	for round := range rounds {
		for i, ns := range names {
			position := (offset + round*watches + i) % eventSize
			proxy.after(ns, position)
			clients[i].patch("a", fmt.Sprintf(`{"data":{"value":"%d-1"}}`, round)) // the cut is in one of the two
			clients[i].patch("a", fmt.Sprintf(`{"data":{"value":"%d-2"}}`, round))
		}
		r.wait(t, fmt.Sprintf("the updates of round %d, cut at %d and on", round, offset), func() bool {
			return len(r.events) >= watches*(1+2*(round+1))
		})
		poll(t, "all cuts", func() bool { return proxy.count() == (round+1)*watches })
	}
	for _, ns := range names {
		var got, want []string
		for _, e := range about(r.all(), ns+"/a") {
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
	if n := r.relists(t); n != 0 {
		t.Errorf("%v relists, want none: a watch that was cut goes on where it was", n)
	}
}

// TestCutInTheFirstList cuts the stream of initial events after many of its bytes: each object is delivered once, as initial.
func TestCutInTheFirstList(t *testing.T) {
	const n, watches = 6, 30
	s := sandboxtest.Start(t)
	proxy := newScissors(t, s)
	var names []string
	for i := range watches {
		ns := s.Namespace(t)
		names = append(names, ns)
		createMany(t, s, ns, "m", n)
		proxy.after(ns, i*(n+1)*330/watches)
	}
	r := start(t, proxy.kubeconfig, fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: [%s]}
routes:
  - {name: all, from: maps, existing: deliver, to: out}
`, strings.Join(names, ", ")))
	r.ready(t)
	r.wait(t, "all objects", func() bool { return len(r.events) >= n*watches })
	var want []string
	for _, ns := range names {
		for i := range n {
			want = append(want, fmt.Sprintf("all added %s/m-%d", ns, i))
		}
		use(t, s, configMaps, ns).create(configMap("after", "1"))
		want = append(want, "all added "+ns+"/after")
	}
	events := r.expect(t, want...)
	exactly(t, summary(events), want)
	for _, e := range events {
		if initial := strings.Contains(string(e.Data), `"initial":true`); initial == strings.HasSuffix(e.Subject, "/after") {
			t.Errorf("%s: initial is %v", e, initial)
		}
	}
	if cuts := proxy.count(); cuts < watches/2 {
		t.Errorf("%d cuts only", cuts)
	}
}

// TestCutUnderLoad cuts all connections at random moments while an object changes all the time.
func TestCutUnderLoad(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	proxy := s.Proxy(t)
	maps := use(t, s, configMaps, ns)
	r := start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.ready(t)
	const objects = 5
	for i := range objects {
		maps.create(configMap(fmt.Sprintf("m-%d", i), "0"))
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
	for range scaled(t, 8) {
		select {
		case <-time.After(time.Duration(rand.IntN(700)) * time.Millisecond): //nolint:gosec // no secret
		case <-ctx.Done():
		}
		proxy.Cut()
	}
	stop()
	n := <-done
	r.wait(t, "all updates", func() bool { return len(r.events) >= n+objects })
	for i := range objects {
		var got, want []string
		for _, e := range about(r.all(), fmt.Sprintf("%s/m-%d", ns, i)) {
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
	if n := r.relists(t); n != 0 {
		t.Errorf("%v relists, want none", n)
	}
}

// TestHalfOpenConnection: the network forgets the connections and says so to nobody. The router finds out by itself, with pings of
// HTTP/2 that come, unless the environment says otherwise, after 30 s without news and wait for 15 s.
func TestHalfOpenConnection(t *testing.T) {
	if long(t) == 0 {
		t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
		t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	}
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	hole := newBlackHole(t, s)
	maps := use(t, s, configMaps, ns)
	maps.create(configMap("same", "1"))
	r := start(t, hole.kubeconfig, fmt.Sprintf(watchConfigMaps, ns))
	r.ready(t)
	maps.create(configMap("before", "1"))
	r.expect(t, "all added "+ns+"/before")
	hole.freeze()
	began := time.Now()
	maps.create(configMap("meanwhile", "1"))
	maps.remove("before")
	for waiting := time.Tick(time.Second); time.Since(began) < time.Minute && len(r.all()) < 3; { // longer than the patience of expect
		<-waiting
	}
	want := []string{"all added " + ns + "/before", "all added " + ns + "/meanwhile", "all deleted " + ns + "/before"}
	exactly(t, summary(r.expect(t, want...)), want)
	t.Logf("noticed after %v", time.Since(began).Round(100*time.Millisecond))
	if n := r.relists(t); n != 0 {
		t.Errorf("%v relists, want none", n)
	}
}
