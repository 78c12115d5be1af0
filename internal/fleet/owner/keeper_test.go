package owner

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/complaints"
)

const ttl = 10 * time.Second

var part = Partition{"r", 1, 0}

// shared is a bucket in memory with one revision for all keys, as a stream has.
type shared struct {
	mu     sync.Mutex
	last   uint64
	values map[string][]byte
	at     map[string]uint64
}

func newShared() *shared { return &shared{values: map[string][]byte{}, at: map[string]uint64{}} }

// link is the way of one worker to the bucket.
type link struct {
	*shared

	delay  func() (there, back time.Duration) // of a call; nil: none
	cut    func() (there, back bool)          // whether a call or its answer is lost; nil: never
	frozen func() <-chan struct{}             // the process stands still until the channel is closed; nil: never
}

func (l *link) pass(ctx context.Context, do func() error) error {
	there, back := time.Duration(0), time.Duration(0)
	if l.delay != nil {
		there, back = l.delay()
	}
	lostThere, lostBack := false, false
	if l.cut != nil {
		lostThere, lostBack = l.cut()
	}
	if lostThere {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(there)
	err := do() // the call is stored even if its sender does not wait for it any more
	time.Sleep(back)
	if lostBack {
		<-ctx.Done()
	}
	if l.frozen != nil {
		if until := l.frozen(); until != nil {
			<-until
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (l *link) Get(ctx context.Context, key string) (v []byte, revision uint64, err error) {
	err = l.pass(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		v, revision = l.values[key], l.at[key]
		return nil
	})
	return v, revision, err
}

func (l *link) Put(ctx context.Context, key string, v []byte, after uint64) (revision uint64, err error) {
	err = l.pass(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.at[key] != after {
			return ErrChanged
		}
		l.last++
		l.values[key], l.at[key] = v, l.last
		revision = l.last
		return nil
	})
	if err != nil {
		revision = 0
	}
	return revision, err
}

func (l *link) Delete(ctx context.Context, key string, after uint64) error {
	return l.pass(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.at[key] != after {
			return ErrChanged
		}
		delete(l.values, key)
		delete(l.at, key)
		return nil
	})
}

// watchmen record the epochs and find two owners at one time.
type watchmen struct {
	t *testing.T

	mu     sync.Mutex
	owners map[string]*Lease
	epochs []uint64
}

// enter records that a worker holds a lease.
func (w *watchmen) enter(name string, l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.epochs {
		if e >= l.Epoch {
			w.t.Errorf("epoch %d was taken after epoch %d", l.Epoch, e)
		}
	}
	w.epochs = append(w.epochs, l.Epoch)
	w.owners[name] = l
}

// check fails if two leases are valid at the same time.
func (w *watchmen) check() (owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.owners {
		if !l.Valid() {
			continue
		}
		if owner != "" {
			w.t.Errorf("at %v both %s and %s own the partition", time.Now(), owner, name)
		}
		owner = name
	}
	return owner
}

func newKeeper(name string, s Store, hold Hold) *keeper {
	k := &keeper{
		store: s, partition: part, worker: name, ttl: ttl, log: slog.New(slog.DiscardHandler), hold: hold,
		complaints: complaints.New(slog.New(slog.DiscardHandler)),
		give:       make(chan struct{}), ended: make(chan struct{}),
	}
	k.first.Store(true)
	return k
}

// obey holds a lease until it is lost or given.
func (w *watchmen) obey(name string) Hold {
	return func(ctx context.Context, l *Lease) bool {
		w.enter(name, l)
		select {
		case <-ctx.Done():
		case <-l.Released():
		}
		return false
	}
}

// A worker that is given the partition has it at once after the one before has handed it over, and
// after the TTL if that one is gone.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone bool
		most time.Duration
	}{
		"clean": {false, ttl / 5},
		"gone":  {true, ttl + ttl*3/10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := newShared(), &watchmen{t: t, owners: map[string]*Lease{}}
				ctx, kill := context.WithCancel(t.Context())
				a, b := newKeeper("a", &link{shared: s}, w.obey("a")), newKeeper("b", &link{shared: s}, w.obey("b"))
				go a.run(ctx)
				time.Sleep(ttl)
				if owner := w.check(); owner != "a" {
					t.Fatalf("%q owns the partition, want a", owner)
				}
				go b.run(t.Context())
				time.Sleep(5 * ttl)
				if owner := w.check(); owner != "a" {
					t.Fatalf("%q owns the partition, want a", owner)
				}
				begin := time.Now()
				if c.gone {
					kill()
				} else {
					a.dismiss()
				}
				for w.check() != "b" {
					time.Sleep(ttl / 1000)
				}
				if d := time.Since(begin); d > c.most {
					t.Errorf("b has it after %v, want at most %v", d, c.most)
				}
				if l := b.holding.Load(); l != nil {
					if want := map[bool]int{true: 1}[c.gone]; l.Trail.Unclean != want {
						t.Errorf("unclean %d, want %d", l.Trail.Unclean, want)
					}
				}
				b.dismiss()
				<-a.ended
				<-b.ended
				kill()
			})
		})
	}
}

// TestLostObsolete: a partition whose lease was lost, and whose generation has no messages any more
// when the keeper ends, leaves no key behind.
func TestLostObsolete(t *testing.T) {
	// Guarantee: workers-reshard
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newShared(), &watchmen{t: t, owners: map[string]*Lease{}}
		var cut atomic.Bool
		k := newKeeper("a", &link{shared: s, cut: func() (there, back bool) { return cut.Load(), false }}, w.obey("a"))
		go k.run(t.Context())
		time.Sleep(ttl)
		cut.Store(true)
		time.Sleep(ttl)
		if k.holding.Load() != nil || len(s.values) != 1 {
			t.Fatalf("the lease is not lost, or the key is gone: %q", s.values)
		}
		k.obsolete.Store(true)
		k.dismiss()
		cut.Store(false)
		<-k.ended
		if len(s.values) > 0 {
			t.Errorf("left behind: %q", s.values)
		}
	})
}

// TestLostTogether: the partitions that a worker loses for one reason have one line in its log at
// once, and one 10 s later, with the names of the routes instead of the keys of partitions.
func TestLostTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		complain := complaints.New(slog.New(slog.NewTextHandler(&log, nil)))
		var cut atomic.Bool
		ctx, end := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for n := range 32 {
			k := newKeeper("a", &link{shared: newShared(), cut: func() (there, back bool) { return cut.Load(), cut.Load() }},
				func(ctx context.Context, _ *Lease) bool { <-ctx.Done(); return false })
			k.partition, k.route, k.complaints = Partition{"0a1b2c3d", 1, n}, []string{"pods", "nodes"}[n%2], complain
			ended.Go(func() { k.run(ctx) })
		}
		time.Sleep(2 * ttl)
		cut.Store(true)
		time.Sleep(2 * ttl)
		end()
		ended.Wait()
		complain.Close()
		text := log.String()
		if n := strings.Count(text, "\n"); n != 2 || strings.Contains(text, "0a1b2c3d") || !strings.Contains(text, "times=31") ||
			!strings.Contains(text, "pods") || !strings.Contains(text, "nodes") {
			t.Errorf("%d lines:\n%s", n, text)
		}
	})
}

// An owner whose updates are not answered any more stops after 0.6 TTL by its own clock, counted
// from when the last confirmed one was sent, and before another worker has the partition. The
// answer of that update came late, which does not extend it.
func TestPausedOwnerStops(t *testing.T) {
	// Guarantee: workers-owner
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newShared(), &watchmen{t: t, owners: map[string]*Lease{}}
		var sent atomic.Pointer[time.Time] // of the last call that is answered
		var dead atomic.Bool
		la := &link{shared: s}
		la.delay = func() (there, back time.Duration) {
			if !dead.Load() {
				now := time.Now()
				sent.Store(&now)
			}
			return 0, ttl / 5
		}
		la.cut = func() (there, back bool) { return dead.Load(), dead.Load() }
		a, b := newKeeper("a", la, w.obey("a")), newKeeper("b", &link{shared: s}, w.obey("b"))
		go a.run(t.Context())
		time.Sleep(2*ttl + ttl/7)
		go b.run(t.Context())
		dead.Store(true)
		last, end := *sent.Load(), time.Time{}
		for w.check() == "a" {
			end = time.Now()
			time.Sleep(ttl / 1000)
		}
		if d := end.Sub(last); d > ttl*6/10 || d < ttl*5/10 {
			t.Errorf("a stopped %v after it had sent its last confirmed update, want %v", d, ttl*6/10)
		}
		for w.check() != "b" {
			time.Sleep(ttl / 1000)
		}
		if d := time.Since(last); d < ttl {
			t.Errorf("b has it %v after the last update", d)
		}
		b.dismiss()
		a.dismiss()
		<-a.ended
		<-b.ended
	})
}

// Two owners never act at the same time, whatever happens to calls, answers and processes: a random
// run of three workers with delays, lost calls, lost answers, pauses and hand-overs. Somebody owns
// the partition most of the time.
func TestNeverTwo(t *testing.T) {
	// Guarantee: workers-owner
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { neverTwo(t, seed) })
	}
}

func neverTwo(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(n) == 0 }
	upTo := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(d)))
	}
	s, w := newShared(), &watchmen{t: t, owners: map[string]*Lease{}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		l := &link{shared: s}
		l.delay = func() (there, back time.Duration) {
			if chance(30) {
				return upTo(2 * ttl), upTo(2 * ttl)
			}
			return upTo(ttl / 20), upTo(ttl / 20)
		}
		l.cut = func() (there, back bool) { return chance(20), chance(20) }
		l.frozen = func() <-chan struct{} {
			if !chance(60) {
				return nil
			}
			until := make(chan struct{})
			time.AfterFunc(upTo(3*ttl), func() { close(until) })
			return until
		}
		all.Go(func() {
			for ctx.Err() == nil {
				k := newKeeper(name, l, func(ctx context.Context, l *Lease) bool {
					w.enter(name, l)
					select {
					case <-ctx.Done():
					case <-l.Released():
					case <-time.After(upTo(8 * ttl)):
						return chance(2) // take it again
					}
					return false
				})
				end := time.AfterFunc(upTo(10*ttl), k.dismiss)
				k.run(ctx)
				end.Stop()
			}
		})
	}
	owned := 0
	const steps = 20_000
	for range steps {
		time.Sleep(ttl / 100)
		if w.check() != "" {
			owned++
		}
	}
	stop()
	all.Wait()
	if owned < steps/4 {
		t.Errorf("seed %d: the partition had an owner in %d of %d moments", seed, owned, steps)
	}
	if len(w.epochs) < 10 {
		t.Errorf("seed %d: only %d epochs", seed, len(w.epochs))
	}
}

// An update that was stored and whose answer was lost does not end the lease.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newShared(), &watchmen{t: t, owners: map[string]*Lease{}}
		var n atomic.Int64
		l := &link{shared: s}
		l.cut = func() (there, back bool) { return false, n.Add(1) == 10 }
		a := newKeeper("a", l, w.obey("a"))
		go a.run(t.Context())
		for range 1000 {
			time.Sleep(ttl / 100)
			if n.Load() > 1 && w.check() != "a" {
				t.Fatal("the owner has lost the partition")
			}
		}
		a.dismiss()
		<-a.ended
		if len(w.epochs) != 1 {
			t.Errorf("epochs %v, want one", w.epochs)
		}
		if v, _ := decode(s.values[part.String()]); !v.free() {
			t.Error("the partition is not free")
		}
	})
}

// The trail of an owner that ended without a hand-over reaches the next one.
func TestTrail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		ctx, kill := context.WithCancel(t.Context())
		a := newKeeper("a", &link{shared: s}, func(ctx context.Context, l *Lease) bool {
			if !l.Written(Trail{Unclean: 2, Handling: 77}, nil) {
				t.Error("the trail is not written")
			}
			kill()
			<-ctx.Done()
			return false
		})
		a.run(ctx)
		var got Trail
		b := newKeeper("b", &link{shared: s}, nil)
		b.hold = func(_ context.Context, l *Lease) bool { got = l.Trail; b.dismiss(); return false }
		b.run(t.Context())
		if want := (Trail{Unclean: 3, Handling: 77}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
