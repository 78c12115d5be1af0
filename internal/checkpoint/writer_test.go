package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// fakeDB is a store with delays and failures.
type fakeDB struct {
	mu      sync.Mutex
	takes   time.Duration
	fails   error
	writes  []string // the writes with their times
	began   time.Time
	cluster string
	logs    bool
}

func (db *fakeDB) Commit(cut *Cut, intents map[string][]*event.Object) error {
	db.mu.Lock()
	takes, fails := db.takes, db.fails
	db.mu.Unlock()
	time.Sleep(takes)
	db.mu.Lock()
	defer db.mu.Unlock()
	if fails != nil {
		db.note("failed")
		return fails
	}
	var b strings.Builder
	for _, w := range cut.Watches {
		fmt.Fprintf(&b, "%s@%s", w.ID, w.Applied)
		for _, o := range w.Put {
			fmt.Fprintf(&b, "+%s", o.Key().Name)
		}
	}
	for _, watch := range slices.Sorted(maps.Keys(intents)) {
		for _, o := range intents[watch] {
			fmt.Fprintf(&b, " %s?%s", watch, o.UID())
		}
	}
	if cut.Cluster != "" {
		db.cluster = cut.Cluster
	}
	db.note(b.String())
	return nil
}

// Log counts as a write of its own if logs is set.
func (db *fakeDB) Log(intents map[string][]*event.Object) (ok bool, err error) {
	if !db.logs {
		return false, nil
	}
	return true, db.Commit(&Cut{}, intents)
}

func (db *fakeDB) note(what string) {
	db.writes = append(db.writes, fmt.Sprintf("%v %s", time.Since(db.began), what))
}

func (db *fakeDB) Cluster() string { return db.cluster }

func (db *fakeDB) set(takes time.Duration, fails error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.takes, db.fails = takes, fails
}

// said returns the writes since the last call.
func (db *fakeDB) said() string {
	db.mu.Lock()
	defer db.mu.Unlock()
	all := strings.Join(db.writes, "; ")
	db.writes = nil
	return all
}

// fakeCollector returns cuts one after the other, then empty ones.
type fakeCollector struct {
	mu   sync.Mutex
	cuts []Cut
	done []error
	n    int
}

func (c *fakeCollector) Collect(at func()) Cut {
	at()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if len(c.cuts) == 0 {
		return Cut{}
	}
	cut := c.cuts[0]
	c.cuts = c.cuts[1:]
	return cut
}

func (c *fakeCollector) Done(err error) { c.done = append(c.done, err) }

func (c *fakeCollector) give(cuts ...Cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts = append(c.cuts, cuts...)
}

func fed(n int, objects ...*event.Object) Cut {
	return Cut{Watches: []WatchCut{{ID: "w", Applied: fmt.Sprint(n), Put: objects}}}
}

// inBubble runs a Writer on a fake clock.
func inBubble(t *testing.T, f func(t *testing.T, w *Writer, db *fakeDB, c *fakeCollector)) {
	synctest.Test(t, func(t *testing.T) {
		db, c := &fakeDB{began: time.Now()}, &fakeCollector{}
		w := newWriter(db, c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); w.Run(ctx) }()
		f(t, w, db, c)
		cancel()
		<-stopped
	})
}

func open(gate <-chan struct{}) bool {
	select {
	case <-gate:
		return true
	default:
		return false
	}
}

func sleep(d time.Duration) { time.Sleep(d); synctest.Wait() }

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func intent(name, uid string) *event.Object {
	return event.Identity(nil, event.Key{Name: name}, uid)
}

// TestLoggedIntents: intents that the store logs wait for the present write only, and for no time.
func TestLoggedIntents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, _ *fakeCollector) {
		db.logs = true
		db.set(2*time.Millisecond, nil)
		w.Gate("w", intent("a", "u0"))
		sleep(12 * time.Millisecond) // from now on, the writer knows that the store logs
		db.said()
		for _, uid := range []string{"u1", "u2", "u3"} {
			w.Gate("w", intent("a", uid))
			sleep(500 * time.Microsecond)
		}
		sleep(3 * time.Millisecond)
		expect(t, "writes", db.said(), "14ms  w?u1; 16ms  w?u2 w?u3")
	})
}

// TestIntentsWithinTenMilliseconds: an intent that is committed is written at once, except shortly
// after another write, when it waits together with others.
func TestIntentsWithinTenMilliseconds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, _ *fakeCollector) {
		db.set(2*time.Millisecond, nil)
		sleep(3 * time.Millisecond)
		first := w.Gate("w", intent("a", "u1"))
		sleep(time.Millisecond)
		second := w.Gate("v", intent("b", "u2"))
		if open(first) {
			t.Error("a gate is open before its intent is written")
		}
		sleep(time.Millisecond)
		if !open(first) || open(second) {
			t.Error("the first gate is closed, or the second is open")
		}
		sleep(9 * time.Millisecond)
		third := w.Gate("w", intent("c", "u3"))
		sleep(2 * time.Millisecond)
		if open(second) || open(third) {
			t.Error("a gate of the second batch is open before it is written")
		}
		sleep(time.Millisecond)
		if !open(second) || !open(third) {
			t.Error("a gate of the second batch is closed")
		}
		expect(t, "writes", db.said(), "5ms  w?u1; 17ms  v?u2 w?u3")
		if s := w.Stats(); s.Intents != 3 || s.Cuts != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestPace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		c.give(fed(1), Cut{}, fed(2), fed(3), fed(4), fed(5))
		sleep(2500 * time.Millisecond) // the second is empty: nothing is written
		expect(t, "by the second", db.said(), "1s w@1")
		db.set(200*time.Millisecond, nil)
		sleep(2500 * time.Millisecond) // 3 s: 2; it took 0.2 s, so the next comes 2 s later
		expect(t, "slower", db.said(), "3.2s w@2")
		db.set(time.Second, nil)
		sleep(1500 * time.Millisecond) // 5.2 s: 3
		expect(t, "slow", db.said(), "6.2s w@3")
		sleep(6 * time.Second) // 11.2 s: 4, because the interval has an end
		expect(t, "slowest", db.said(), "12.2s w@4")
		db.set(0, nil)
		sleep(5 * time.Second) // 17.2 s
		expect(t, "quick again", db.said(), "17.2s w@5")
		for i, err := range c.done {
			if err != nil {
				t.Error(i, err)
			}
		}
		if s := w.Stats(); s.Cuts != 6 || s.Writing != 2200*time.Millisecond || s.LastCut.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestPaceIgnoresLogs: logged intents do not delay the cuts, however long the disk takes.
func TestPaceIgnoresLogs(t *testing.T) {
	inBubble(t, func(_ *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		db.logs = true
		db.set(90*time.Millisecond, nil)
		for i := range 50 {
			w.Gate("w", intent("a", fmt.Sprint(i)))
			sleep(100 * time.Millisecond)
		}
		if c.n < 4 {
			t.Errorf("%d cuts in 5 seconds", c.n)
		}
	})
}

// TestPaceHeedsIntents: intents that are committed count towards the budget, too.
func TestPaceHeedsIntents(t *testing.T) {
	inBubble(t, func(_ *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		db.set(90*time.Millisecond, nil)
		for i := range 20 {
			w.Gate("w", intent("a", fmt.Sprint(i)))
			sleep(100 * time.Millisecond)
		}
		sleep(3900 * time.Millisecond)
		if c.n != 1 { // one after a second, and the next five seconds later
			t.Errorf("%d cuts in 5.9 seconds", c.n)
		}
	})
}

// TestAwaitCut: the wait ends when a cut that was collected later is on disk, and with its context.
func TestAwaitCut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		began, broken := time.Now(), errors.New("no space")
		db.set(0, broken)
		c.give(fed(1), fed(2))
		var waiting sync.WaitGroup
		waiting.Go(func() { w.AwaitCut(t.Context()) })
		sleep(1050 * time.Millisecond) // the cut after a second fails
		db.set(0, nil)
		waiting.Wait()
		if took := time.Since(began); took != 1100*time.Millisecond {
			t.Errorf("a cut is awaited for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		w.AwaitCut(ctx)
		if took := time.Since(began); took != 1101*time.Millisecond {
			t.Errorf("without a cut the wait ended after %v", took)
		}
	})
}

func TestFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		broken := errors.New("no space")
		r := &event.Resource{}
		a, _ := event.ParseObject(r, `{"metadata":{"name":"a","uid":"1"}}`)
		b, _ := event.ParseObject(r, `{"metadata":{"name":"b","uid":"2"}}`)
		db.set(0, broken)
		c.give(fed(1, a))
		early := w.Gate("w", a)
		sleep(500 * time.Millisecond) // 0, 100, 300 ms, then 700 and 1500
		late := w.Gate("w", b)
		expect(t, "attempts", db.said(), "0s failed; 100ms failed; 300ms failed")
		if !errors.Is(w.Err(), broken) || open(early) || open(late) {
			t.Error(w.Err(), open(early), open(late))
		}
		c.give(fed(2), fed(3, b))
		sleep(990 * time.Millisecond)
		expect(t, "attempts", db.said(), "700ms failed")
		db.set(0, nil)
		// 1500 ms: one transaction for all of it
		sleep(20 * time.Millisecond)
		// the cuts have the objects of the intents
		if got := db.said(); got != "1.5s w@3+a+b" && got != "1.5s w@3+b+a" {
			t.Error(got)
		}
		if w.Err() != nil || !open(early) || !open(late) {
			t.Error(w.Err(), open(early), open(late))
		}
		next := w.Gate("w", intent("b", "3"))
		sleep(10 * time.Millisecond)
		if expect(t, "afterwards", db.said(), "1.51s  w?3"); !open(next) {
			t.Error("the next gate is closed")
		}
		if s := w.Stats(); s.Failures != 4 || len(c.done) != 5 || c.done[3] == nil || c.done[4] != nil {
			t.Errorf("%+v %v", s, c.done)
		}
	})
}

func TestBackoffHasAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Writer, db *fakeDB, c *fakeCollector) {
		db.set(0, errors.New("read-only"))
		c.give(fed(1))
		sleep(time.Minute)
		db.said()
		sleep(5 * time.Second)
		if got := db.said(); strings.Count(got, "failed") != 1 {
			t.Error(got)
		}
	})
}

func TestFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, db *fakeDB, c *fakeCollector) {
		w.Gate("w", intent("before", "before"))
		sleep(time.Millisecond) // Run has written it, and writes the next one 10 ms later
		expect(t, "an intent", db.said(), "0s  w?before")
		db.mu.Lock()
		db.began = time.Now()
		db.mu.Unlock()
		c.give(fed(1))
		gate := w.Gate("w", intent("a", "u"))
		if err := w.Flush(t.Context()); err != nil || !open(gate) {
			t.Error(err, open(gate))
		}
		expect(t, "flush", db.said(), "0s w@1 w?u")
		c.give(fed(2))
		db.set(0, errors.New("no space"))
		if err := w.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Error(err)
		}
		db.set(time.Hour, nil) // a disk that hangs
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("while another one writes:", err)
		}
		sleep(time.Hour)
		expect(t, "in the end", db.said(), "0s failed; 1h0m0s w@2")
	})
}

// After the end of Run, Flush can still open gates.
func TestFlushAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{began: time.Now()}
		w := newWriter(db, &fakeCollector{cuts: []Cut{{Cluster: "c"}, {Cluster: "c"}}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.Run(ctx)
		gate := w.Gate("w", intent("a", "u"))
		sleep(time.Minute)
		if open(gate) || db.said() != "" {
			t.Error("something was written")
		}
		if err := w.Flush(t.Context()); err != nil || !open(gate) || db.Cluster() != "c" {
			t.Error(err)
		}
		db.said()
		if err := w.Flush(t.Context()); err != nil || db.said() != "" {
			t.Error("the same cluster was written again", err)
		}
	})
}

// A Writer on a real file.
func TestWriterAndFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := Open(Config{Path: path})
	must.Succeed(t, err)
	defer db.Close()
	c := &fakeCollector{}
	w := NewWriter(db, c, nil)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.Run(ctx) }()
	var gates sync.WaitGroup
	for i := range 50 {
		gates.Go(func() { <-w.Gate("w", intent(fmt.Sprint(i), "u")) })
	}
	gates.Wait()
	known, err := db.LoadWatch("w")
	if err != nil || len(known.Intents) != 50 {
		t.Error(known, err)
	}
	cancel()
	<-stopped
	c.give(fed(7))
	must.Report(t, w.Flush(t.Context()))
	if known, err = db.LoadWatch("w"); err != nil || known.Applied != "7" {
		t.Error(known, err)
	}
}

// TestMerge: the merger of two cuts has the same effects as one cut after the other.
func TestMerge(t *testing.T) {
	r := &event.Resource{}
	r.Resource = "pods"
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	uid := rapid.SampledFrom([]string{"1", "2"})
	object := rapid.Custom(func(t *rapid.T) *event.Object {
		o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, name.Draw(t, "n"), uid.Draw(t, "u"), rapid.IntRange(0, 9).Draw(t, "v")))
		must.Succeed(t, err)
		return o
	})
	who := rapid.Custom(func(t *rapid.T) Identity {
		return Identity{Key: event.Key{Name: name.Draw(t, "n")}, UID: uid.Draw(t, "u")}
	})
	owed := rapid.Custom(func(t *rapid.T) Pending {
		return Pending{ID: rapid.Uint64Range(0, 5).Draw(t, "id"), Delta: &event.Delta{Op: event.Added, New: object.Draw(t, "o")}}
	})
	cut := rapid.Custom(func(t *rapid.T) (c Cut) {
		c.Cluster = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "cluster")
		for _, id := range []string{"v", "w"} {
			if rapid.Bool().Draw(t, "there") {
				// As a collector makes it: one state for each name.
				put := rapid.SliceOfNDistinct(object, 0, 3, func(o *event.Object) event.Key { return o.Key() }).Draw(t, "put")
				c.Watches = append(c.Watches, WatchCut{
					ID: id, Applied: name.Draw(t, "fed"), Relisting: rapid.Bool().Draw(t, "relisting"), Reset: rapid.IntRange(0, 5).Draw(t, "reset") == 0,
					Put: put, Deleted: rapid.SliceOfN(who, 0, 3).Draw(t, "deleted"),
				})
				c.Routes = append(c.Routes, RouteCut{
					Name:    id,
					Put:     rapid.SliceOfNDistinct(owed, 0, 3, func(o Pending) uint64 { return o.ID }).Draw(t, "owed"),
					Removed: rapid.SliceOfN(rapid.Uint64Range(0, 5), 0, 3).Draw(t, "removed"),
					Rules: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) RuleRecord {
						r := RuleRecord{Kind: 'l', Key: []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"))}
						if rapid.Bool().Draw(t, "there") {
							r.Value = append([]byte{}, rapid.StringN(0, 3, -1).Draw(t, "value")...)
						}
						return r
					}), 0, 3).Draw(t, "rules"),
				})
			}
		}
		for _, handler := range []string{"h1", "h2"} {
			if rapid.Bool().Draw(t, "handler") {
				c.Memories = append(c.Memories, MemoryCut{
					Handler: handler, Removed: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2).Draw(t, "forgotten"),
					Put: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Value {
						return Value{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), Value: []byte(rapid.StringN(0, 3, -1).Draw(t, "value"))}
					}), 0, 3).Draw(t, "values"),
				})
			}
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		start, first, next := cut.Draw(t, "start"), cut.Draw(t, "first"), cut.Draw(t, "next")
		apart, together := content{}, content{}
		for _, c := range []Cut{start, first, next} {
			apart.apply(&c)
		}
		merged := merge(first, next)
		together.apply(&start)
		together.apply(&merged)
		if !maps.Equal(apart, together) {
			t.Fatalf("apart\n%v\ntogether\n%v", apart, together)
		}
	})
}

// content is the effect of cuts, without intents.
type content map[string]string

func (m content) apply(c *Cut) {
	if c.Cluster != "" {
		m["cluster"] = c.Cluster
	}
	for _, w := range c.Watches {
		if w.Reset {
			maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, w.ID+"/") })
		}
		m[w.ID] = fmt.Sprint(w.Applied, w.Relisting)
		for _, id := range w.Deleted {
			delete(m, w.ID+"/"+id.Key.Name)
		}
		for _, o := range w.Put {
			m[w.ID+"/"+o.Key().Name] = string(o.JSON())
		}
	}
	for _, r := range c.Routes {
		for _, id := range r.Removed {
			delete(m, fmt.Sprintf("route %s/%d", r.Name, id))
		}
		for _, o := range r.Put {
			m[fmt.Sprintf("route %s/%d", r.Name, o.ID)] = string(o.Delta.New.JSON())
		}
		for _, rule := range r.Rules {
			if name := fmt.Sprintf("route %s/rule %s", r.Name, rule.Key); rule.Value == nil {
				delete(m, name)
			} else {
				m[name] = string(rule.Value)
			}
		}
	}
	for _, c := range c.Memories {
		for _, key := range c.Removed {
			delete(m, "handler "+c.Handler+"/"+key)
		}
		for _, v := range c.Put {
			m["handler "+c.Handler+"/"+v.Key] = string(v.Value)
		}
	}
}

// An incarnation that was replaced by another one within a merged cut has ended, and so has its
// intent.
func TestMergeEndsIntents(t *testing.T) {
	r := &event.Resource{}
	one, _ := event.ParseObject(r, `{"metadata":{"name":"a","uid":"1"}}`)
	two, _ := event.ParseObject(r, `{"metadata":{"name":"a","uid":"2"}}`)
	for _, next := range []WatchCut{{ID: "w", Put: []*event.Object{two}}, {ID: "w", Deleted: []Identity{{Key: one.Key()}}}} {
		merged := merge(fed(1, one), Cut{Watches: []WatchCut{next}})
		if !slices.Contains(merged.Watches[0].Deleted, Identity{Key: one.Key(), UID: "1"}) {
			t.Error(merged.Watches[0].Deleted)
		}
	}
}
