package lookup_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

const patience = time.Minute

func connect(t *testing.T, c *natstest.Cluster) *fleet.Conn {
	t.Helper()
	return connectBy(t, c, fleet.Connect)
}

func connectBy(t *testing.T, c *natstest.Cluster, connect func(context.Context, *config.Fleet, string, *slog.Logger) (*fleet.Conn, error)) *fleet.Conn {
	t.Helper()
	cfg := &config.Fleet{Name: "f", NATS: config.NATS{Servers: c.URLs()}, Replicas: 1}
	conn, err := connect(t.Context(), cfg, t.Name(), slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, conn.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Succeed(t, conn.Ready(ctx))
	return conn
}

// leader answers with fixed objects, or an error.
type leader struct {
	mu      sync.Mutex
	objects []*event.Object
	err     error
	asked   lookup.Request
}

func (l *leader) LookUp(_ context.Context, r *lookup.Request) (*lookup.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked = *r; l.err != nil {
		return nil, l.err
	}
	if r.Count {
		return &lookup.Answer{Count: len(l.objects)}, nil
	}
	return &lookup.Answer{Objects: l.objects, Count: len(l.objects)}, nil
}

func (l *leader) set(err error, objects ...*event.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.objects = err, objects
}

// serve runs Serve until stop is called.
func serve(t *testing.T, conn *fleet.Conn, l *leader) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		must.Report(t, lookup.Serve(ctx, conn, l))
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func object(t *testing.T, name string, size int) *event.Object {
	t.Helper()
	noise := make([]byte, size/2)
	_, _ = rand.Read(noise)
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Cluster: "c"}
	o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n","resourceVersion":"5"},"data":%q}`, name, hex.EncodeToString(noise)))
	must.Succeed(t, err)
	return o
}

func ask(t *testing.T, remote plugins.Lookup, q plugins.LookupQuery) (objects []*event.Object, count int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return plugins.Ask(ctx, remote, q)
}

func TestLookup(t *testing.T) {
	// Guarantee: workers-lookup
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	l := &leader{}
	remote := lookup.Remote(connectBy(t, c, fleet.ConnectWorker), "h")
	if _, _, err := ask(t, remote, plugins.LookupQuery{Source: "pods"}); plugins.ClassOf(err) != plugins.Postponed || plugins.RetryAfter(err) == 0 || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("without a leader: %v", err)
	}
	stop := serve(t, connect(t, c), l)
	a, big := object(t, "a", 10), object(t, "big", 3<<20)
	l.set(nil, a, big)
	in := &event.Delta{Source: "pods", Op: event.Updated, New: a}
	var found []*event.Object
	for late := time.Now().Add(patience); ; { // until the subscription of the leader has arrived
		var err error
		if found, _, err = ask(t, remote, plugins.LookupQuery{Source: "pods", Index: "byNode", Value: "v", Deltas: []*event.Delta{in}}); err == nil {
			break
		} else if time.Now().After(late) {
			t.Fatal(err)
		}
	}
	if len(found) != 2 || !bytes.Equal(found[0].JSON(), a.JSON()) || !bytes.Equal(found[1].JSON(), big.JSON()) || *found[0].Resource() != *a.Resource() {
		t.Errorf("got %d objects", len(found))
	}
	want := lookup.Need{Source: "pods", Namespace: "n", Name: "a", ResourceVersion: "5"}
	if r := l.asked; r.Handler != "h" || r.Source != "pods" || r.Index != "byNode" || r.Value != "v" || len(r.Needs) != 1 || r.Needs[0] != want {
		t.Errorf("asked %+v", r)
	}
	if n := remote.Count("pods", "", ""); n != 2 || !l.asked.Count {
		t.Errorf("count %d", n)
	}
	if o := remote.Get("pods", "n", "a"); o == nil || l.asked.Name != "a" || l.asked.Namespace != "n" {
		t.Errorf("got %v", o)
	}

	l.set(nil, object(t, "x", 5<<20), object(t, "y", 5<<20))
	if _, _, err := ask(t, remote, plugins.LookupQuery{Source: "pods"}); plugins.ClassOf(err) != plugins.Rejected {
		t.Errorf("more than 8 MiB: %v", err)
	}
	for _, failure := range []error{lookup.ErrBehind, lookup.ErrDenied, errors.New("broken")} {
		l.set(fmt.Errorf("source %q: %w", "pods", failure))
		if _, _, err := ask(t, remote, plugins.LookupQuery{Source: "pods"}); plugins.ClassOf(err) != plugins.Postponed || !strings.Contains(err.Error(), failure.Error()) {
			t.Errorf("%v: %v", failure, err)
		}
	}
	l.set(nil)
	stop()
	if _, _, err := ask(t, remote, plugins.LookupQuery{Source: "pods"}); plugins.ClassOf(err) != plugins.Postponed {
		t.Errorf("after the end of the leader: %v", err)
	}
}

// TestTwoLeaders shows that the parts of two answers are not mixed.
func TestTwoLeaders(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	one, two := &leader{}, &leader{}
	one.set(nil, object(t, "one", 2<<20))
	two.set(nil, object(t, "two", 2<<20))
	first, second := connect(t, c), connect(t, c)
	serve(t, first, one)
	serve(t, second, two)
	remote := lookup.Remote(connectBy(t, c, fleet.ConnectWorker), "h")
	for done := 0; done < 20; {
		found, _, err := ask(t, remote, plugins.LookupQuery{Source: "pods"})
		// The subscriptions may not have arrived yet, and a busy machine may make 4 MiB of answers
		// too late. The time of the test bounds the loop.
		if errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "no leader") {
			continue
		}
		must.Succeed(t, err)
		if len(found) != 1 {
			t.Fatalf("got %d objects", len(found))
		}
		done++
	}
}

// TestStalled shows that a look-up is postponed when the answer does not arrive in the time of the
// caller.
func TestStalled(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	remote := lookup.Remote(connectBy(t, c, fleet.ConnectWorker), "h")
	silent, _ := c.Connect(t)
	_, err := silent.SubscribeSync("dr.f.q.lookup")
	must.Succeed(t, err)
	must.Succeed(t, silent.Flush())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := plugins.Ask(ctx, remote, plugins.LookupQuery{Source: "pods"}); plugins.ClassOf(err) != plugins.Postponed || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
