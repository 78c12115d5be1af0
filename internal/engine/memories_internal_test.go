package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// noter is a handler that records the name of each object.
type noter struct{ kv plugins.KV }

func (n noter) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	for _, d := range batch {
		if err := n.kv.Commit([]plugins.KVWrite{{Key: d.Key().Name, Value: []byte("seen")}}, 1<<30); err != nil {
			return nil, err
		}
	}
	return slices.Repeat([]plugins.Result{{Verdict: plugins.Drop}}, len(batch)), nil
}

func (noter) Close(context.Context) error { return nil }

// TestMemoriesOfOwners: the instances of a handler for two includes have a kv each, and a full one
// takes no room of the other one.
func TestMemoriesOfOwners(t *testing.T) {
	const limit = 1 << 10
	m := NewMemories(nil, timer.NewFake(time.Now()))
	open := func(handler string) plugins.KV {
		t.Helper()
		store, err := m.OpenHandler(handler)
		must.Succeed(t, err)
		return store
	}
	of := func(n int) []plugins.KVWrite { return []plugins.KVWrite{{Key: "k", Value: make([]byte, n)}} }
	payments, shop, own := open("payments/summary"), open("shop/summary"), open("summary")
	must.Succeed(t, payments.Commit(of(limit-100), limit))
	if err := payments.Commit([]plugins.KVWrite{{Key: "more", Value: make([]byte, 100)}}, limit); !errors.Is(err, plugins.ErrKVFull) {
		t.Errorf("the full kv says %v", err)
	}
	for _, other := range []plugins.KV{shop, own} {
		if other.Size() != 0 {
			t.Errorf("another kv has %d bytes", other.Size())
		}
		must.Succeed(t, other.Commit(of(limit-100), limit))
	}
	if again := open("payments/summary"); again != payments {
		t.Error("a reload has another kv")
	}
}

// TestMemoriesOfACut makes cuts while a handler works. If a delta is done in a cut, the writes of
// the handler for it are in that cut or an earlier one, so a delta that is not repeated after a
// crash has not lost its writes.
func TestMemoriesOfACut(t *testing.T) {
	// Guarantee: kv-ahead
	s := &State{factory: informer.New(informer.Config{Log: slog.New(slog.DiscardHandler)})}
	m := NewMemories(nil, timer.NewFake(time.Now()))
	s.memories = m
	m.stores["h"] = kv.New(timer.NewFake(time.Now()), true)
	var err error
	s.pipeline, err = pipeline.New(pipeline.Config{Store: s, Routes: []spec.Settings{{
		Name: "r", Sources: []string{"s"}, Ops: event.Ops(), HandlerName: "h", Handler: noter{m.stores["h"]}, Concurrency: 2,
		Overflow: spec.Block, Capacity: 1000,
		Sinks: []spec.NamedSink{{Name: "out", Sink: &subjects{}}},
	}}})
	must.Succeed(t, err)
	s.pipeline.Start(t.Context())
	// Collecting the writes of another handler takes a while, in which deltas are done.
	m.stores["z"] = kv.New(timer.NewFake(time.Now()), true)
	slow := make([]plugins.KVWrite, 5000)
	for i := range slow {
		slow[i] = plugins.KVWrite{Key: fmt.Sprint(i)}
	}
	var producer sync.WaitGroup
	stop := make(chan struct{})
	producer.Go(func() { s.produce(t, stop) })

	owed, noted := map[uint64]string{}, map[string]bool{}
	seen := 0
	for range 50 {
		must.Succeed(t, m.stores["z"].Commit(slow, 1<<30))
		cut := s.Collect(func() {})
		for _, v := range cut.Memories[0].Put {
			noted[v.Key] = true
		}
		for _, c := range cut.Routes {
			for _, id := range c.Removed {
				if !noted[owed[id]] {
					t.Errorf("%s is done, and what was written about it is lost in a crash now", owed[id])
				}
				delete(owed, id)
				seen++
			}
			for _, o := range c.Put {
				owed[o.ID] = o.Delta.Key().Name
			}
		}
	}
	close(stop)
	producer.Wait()
	if seen == 0 {
		t.Error("no delta was owed in one cut and done in the next: this test shows nothing")
	}
}

// produce enqueues deltas until stop is closed, and then ends the pipeline.
func (s *State) produce(t *testing.T, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			must.Report(t, errors.Join(s.pipeline.Drain(t.Context()), s.pipeline.Close(t.Context())))
			return
		default:
		}
		name := fmt.Sprintf("o%d", i)
		commit, err := s.pipeline.Admit(t.Context(), &event.Delta{Source: "s", Op: event.Added, New: thing(t, "things", name, name, "1")})
		if err != nil {
			t.Error(err)
			return
		}
		commit.Commit()
	}
}

// memoriesIn returns the memories of a router with a state folder.
func memoriesIn(t *testing.T, path string) (*Memories, *checkpoint.DB, func()) {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	return NewMemories(&State{db: db}, timer.NewFake(time.Now())), db, func() {
		must.Report(t, db.Close())
	}
}

func TestMemoriesStay(t *testing.T) {
	// Guarantee: kv-kept
	path := filepath.Join(t.TempDir(), "state.db")
	m, db, end := memoriesIn(t, path)
	a, err := m.Open("a")
	must.Succeed(t, err)
	if again, err := m.Open("a"); err != nil || again != a {
		t.Error("a handler that is opened anew has another memory", err)
	}
	past, future := time.Now().Add(time.Nanosecond), time.Now().Add(time.Hour)
	if err := a.Commit([]plugins.KVWrite{
		{Key: "k", Value: []byte("1")}, {Key: "past", Value: []byte("2"), Expires: past}, {Key: "future", Value: []byte("3"), Expires: future},
	}, 1<<20); err != nil {
		t.Fatal(err)
	}
	cut := checkpoint.Cut{Memories: m.dirty()}
	if err := db.Write(cut); err != nil || cut.Empty() {
		t.Fatal(err, "or nothing to write")
	}
	if more := m.dirty(); len(more) != 0 && len(more[0].Put) != 0 {
		t.Errorf("it is written twice: %v", more)
	}
	end()

	m, _, end = memoriesIn(t, path)
	defer end()
	if a, err = m.Open("a"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"k": "1", "past": "", "future": "3"} {
		if v, ok := a.Get(key); string(v) != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
	m.Keep([]string{"b"})
	if len(m.stores) != 0 {
		t.Error("a handler that is gone is kept in memory")
	}
	if a, err = m.Open("a"); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.Get("k"); !ok {
		t.Error("a handler that returns has forgotten")
	}
}

func TestMemoriesUnreadable(t *testing.T) {
	m, _, end := memoriesIn(t, filepath.Join(t.TempDir(), "state.db"))
	end()
	if _, err := m.Open("a"); !errors.Is(err, checkpoint.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func thing(t *testing.T, resource, name, uid, version string) *event.Object {
	t.Helper()
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Cluster: "test"}
	o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":%q},"data":"d"}`, name, uid, version))
	must.Succeed(t, err)
	return o
}
