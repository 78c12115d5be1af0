package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// log collects the frames of a leader.
type log struct{ frames []checkpoint.Frame }

func (l *log) config(path string, term uint64) checkpoint.Config {
	return checkpoint.Config{Path: path, Term: term, Shipped: func(f checkpoint.Frame) {
		again, err := checkpoint.DecodeFrame(f.Append(nil))
		if err != nil {
			panic(err)
		}
		l.frames = append(l.frames, again)
	}}
}

func openConfig(t must.T, cfg checkpoint.Config) *checkpoint.DB {
	db, err := checkpoint.Open(cfg)
	must.Succeed(t, err)
	return db
}

// content returns all buckets, values and sequences of a file.
func content(t must.T, path string) string {
	copied := path + ".content"
	copyFile(t, path, copied)
	db, err := bbolt.Open(copied, 0o600, nil)
	must.Succeed(t, err)
	defer db.Close()
	var text strings.Builder
	var walk func(indent string, b *bbolt.Bucket) error
	walk = func(indent string, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value != nil {
				fmt.Fprintf(&text, "%s%q %x\n", indent, key, value)
				return nil
			}
			inner := b.Bucket(key)
			fmt.Fprintf(&text, "%s%q (%d)\n", indent, key, inner.Sequence())
			return walk(indent+"  ", inner)
		})
	}
	must.Succeed(t, db.View(func(tx *bbolt.Tx) error { return walk("", tx.Cursor().Bucket()) }))
	return text.String()
}

// drawTransaction writes one transaction of a random kind.
func drawTransaction(t *rapid.T, db *checkpoint.DB, letters *checkpoint.Letters) {
	kept := func(names []string, what string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 0 })
	}
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		id := rapid.SampledFrom(modelWatches).Draw(t, "watch")
		must.Succeed(t, db.WriteIntents(map[string][]*event.Object{id: rapid.SliceOfN(rapid.Custom(drawObject), 1, 20).Draw(t, "intents")}))
	case 1:
		var all []checkpoint.Letter
		for range rapid.IntRange(1, 5).Draw(t, "letters") {
			all = append(all, checkpoint.Letter{Route: rapid.SampledFrom(modelRoutes).Draw(t, "route"), Error: "e", Time: time.Unix(1, 0), Delta: drawPending(t).Delta})
		}
		must.Succeed(t, letters.Add(context.Background(), all))
	case 2:
		now := time.Unix(0, 0).Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "hours")) * time.Hour)
		must.Succeed(t, db.ExpireBacklogs(now))
		must.Succeed(t, db.Forget(checkpoint.Configured{
			Watches: kept(modelWatches, "watch"), Routes: kept(modelRoutes, "route"), Handlers: kept(modelHandlers, "handler"),
		}, now))
	default:
		must.Succeed(t, db.Write(drawCut(t)))
	}
}

// A leader writes transactions of all kinds, a follower applies their frames: in groups, some of
// them again, over restarts and over a change of the leader. Their files are equal, down to the
// sequences, and so are the figures that they keep in memory.
func TestFollower(t *testing.T) {
	// Guarantee: standby-state
	rapid.Check(t, func(t *rapid.T) {
		folder, err := os.MkdirTemp("", "checkpoint") //nolint:usetesting // one for each run
		must.Succeed(t, err)
		defer os.RemoveAll(folder)
		path := func(name string) string { return filepath.Join(folder, name, "state.db") }
		l := &log{}
		leader := openConfig(t, l.config(path("a"), 3))
		defer func() { leader.Close() }()
		must.Succeed(t, os.MkdirAll(filepath.Dir(path("b")), 0o700))
		copyFile(t, path("a"), path("b"))
		follower := openConfig(t, checkpoint.Config{Path: path("b")})
		defer func() { follower.Close() }()
		a, b, term := "a", "b", uint64(3)
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			letters, err := leader.Letters(checkpoint.LettersConfig{Max: 4})
			must.Succeed(t, err)
			for range rapid.IntRange(0, 4).Draw(t, "transactions") {
				drawTransaction(t, leader, letters)
			}
			for from := 0; from < len(l.frames); {
				to := rapid.IntRange(from+1, len(l.frames)).Draw(t, "group")
				must.Succeed(t, follower.Apply(l.frames[rapid.IntRange(0, from).Draw(t, "again"):to]...))
				from = to
			}
			if got, want := content(t, path(b)), content(t, path(a)); got != want {
				t.Fatalf("the leader's file has\n%sthe follower's\n%s", want, got)
			}
			if leader.Position() != follower.Position() || leader.Cluster() != follower.Cluster() || backlogs(leader) != backlogs(follower) {
				t.Fatalf("the leader has %v %q\n%s\nthe follower %v %q\n%s", leader.Position(), leader.Cluster(), backlogs(leader),
					follower.Position(), follower.Cluster(), backlogs(follower))
			}
			must.Succeed(t, follower.Apply(l.frames...))
			switch rapid.IntRange(0, 3).Draw(t, "then") {
			case 0: // the follower leads with the file that it has open
				must.Succeed(t, leader.Close())
				a, b, term = b, a, term+1
				must.Succeed(t, follower.Lead(l.config("", term).Shipped, nil, term))
				leader, follower = follower, openConfig(t, checkpoint.Config{Path: path(b)})
			case 1:
				must.Succeed(t, errors.Join(leader.Close(), follower.Close()))
				if term++; rapid.Bool().Draw(t, "takeover") {
					a, b = b, a
				}
				leader = openConfig(t, l.config(path(a), term))
				follower = openConfig(t, checkpoint.Config{Path: path(b)})
			}
			l.frames = nil
		}
	})
}

func value(i int) checkpoint.Cut {
	return checkpoint.Cut{Memories: []checkpoint.MemoryCut{{Handler: "h", Put: []checkpoint.Value{{Key: fmt.Sprint("k", i%7), Value: []byte(fmt.Sprint(i))}}}}}
}

// led returns the frames of n transactions of a leader, and a follower that has none of them.
func led(t *testing.T, n int) (l *log, leader, follower *checkpoint.DB, path string) {
	t.Helper()
	l = &log{}
	path = statePath(t)
	leader = openConfig(t, l.config(path, 1))
	t.Cleanup(func() { leader.Close() })
	copied := path + ".follower"
	copyFile(t, path, copied)
	follower = open(t, copied)
	for i := range n {
		write(t, leader, value(i))
	}
	return l, leader, follower, copied
}

// A frame that does not follow is refused, and leaves the file as it was.
func TestFrameGap(t *testing.T) {
	// Guarantee: standby-state
	l, leader, follower, path := led(t, 10)
	must.Succeed(t, follower.Apply(l.frames[:3]...))
	before := content(t, path)
	other := l.frames[3]
	other.Before = 7
	seal := l.frames[3]
	seal.Seal.Sum++
	large := l.frames[3]
	large.Ops, large.TooLarge = nil, true
	deposed := l.frames[2]
	deposed.Term = 2
	for name, frames := range map[string][]checkpoint.Frame{
		"gap": l.frames[4:], "reordered": {l.frames[4], l.frames[3]}, "gap within": {l.frames[3], l.frames[5]},
		"after another leader's": {other}, "other content": {seal}, "too large": {large}, "a higher term's in place of an own": {deposed},
	} {
		if err := follower.Apply(frames...); !errors.Is(err, checkpoint.ErrFrameGap) {
			t.Errorf("%s: %v", name, err)
		}
		if got := content(t, path); got != before || follower.Position() != l.frames[2].Position {
			t.Errorf("%s: the file has %v\n%s", name, follower.Position(), got)
		}
	}
	must.Succeed(t, follower.Apply(l.frames[1], l.frames[0], l.frames[2], l.frames[3], l.frames[4]))
	must.Succeed(t, follower.Apply(l.frames...))
	if leader.Position() != follower.Position() {
		t.Error(follower.Position())
	}
	must.Fail(t, leader.Apply(l.frames...), "a leader applies no frames")
}

// A file that a router without a fleet has changed is in no log any more, and the next leader's
// frames do not follow on those of before.
func TestPositionEnds(t *testing.T) {
	// Guarantee: state-leaves-fleet
	l := &log{}
	path := statePath(t)
	db := openConfig(t, l.config(path, 4))
	write(t, db, value(1))
	if p := db.Position(); p != (checkpoint.Position{Term: 4, Number: 2}) {
		t.Error(p)
	}
	must.Succeed(t, db.Close())
	db = open(t, path)
	if p := db.Position(); p.Number != 2 {
		t.Error(p)
	}
	write(t, db, value(2))
	if p := db.Position(); p != (checkpoint.Position{}) {
		t.Error("after a write without a fleet:", p)
	}
	db = reopen(t, db, path)
	if p := db.Position(); p != (checkpoint.Position{}) {
		t.Error("after a restart:", p)
	}
	must.Succeed(t, db.Close())
	db = openConfig(t, l.config(path, 5))
	defer db.Close()
	write(t, db, value(3))
	f := l.frames[len(l.frames)-1]
	if f.Position != (checkpoint.Position{Term: 5, Number: 2}) || f.Before != 5 {
		t.Error(f.Position, f.Before)
	}
}

// A first leader with a file of before the fleet: an empty follower does not take its frames.
func TestFirstLeader(t *testing.T) {
	// Guarantee: state-leaves-fleet
	path := statePath(t)
	db := open(t, path)
	write(t, db, value(1))
	must.Succeed(t, db.Close())
	l := &log{}
	db = openConfig(t, l.config(path, 1))
	defer db.Close()
	write(t, db, value(2))
	empty := open(t, statePath(t))
	if err := empty.Apply(l.frames...); !errors.Is(err, checkpoint.ErrFrameGap) {
		t.Error(err)
	}
}

func TestFrameEncoding(t *testing.T) {
	// Guarantee: standby-state
	l, _, follower, path := led(t, 1)
	text := l.frames[0].Append(nil)
	for i := range text {
		for name, data := range map[string][]byte{"cut off": text[:i], "damaged": flipped(text, i)} {
			if _, err := checkpoint.DecodeFrame(data); !errors.Is(err, checkpoint.ErrFrameDamaged) && (i > 0 || !errors.Is(err, checkpoint.ErrFrameNewer)) {
				t.Fatalf("%s at %d: %v", name, i, err)
			}
		}
	}
	before := content(t, path)
	ops := l.frames[0].Ops
	for i := range ops {
		for name, data := range map[string][]byte{"cut off": ops[:i], "damaged": flipped(ops, i)} {
			f := l.frames[0]
			f.Ops = data
			if err := follower.Apply(f); err == nil {
				t.Fatalf("%s at %d: applied", name, i)
			}
		}
	}
	if got := content(t, path); got != before {
		t.Error("the file was changed")
	}
	must.Succeed(t, follower.Apply(l.frames...))
}

func flipped(data []byte, i int) []byte {
	data = bytes.Clone(data)
	data[i] ^= 0x20
	return data
}

// FuzzFrame applies any operations: a refusal leaves the file intact.
func FuzzFrame(f *testing.F) {
	l := &log{}
	path := filepath.Join(f.TempDir(), "state.db")
	leader := openConfig(f, l.config(path, 1))
	copied := path + ".follower"
	copyFile(f, path, copied)
	o := object(f, resource("", "pods"), "a", "u", "1", "b")
	for _, reset := range []bool{false, true} {
		cut := value(1)
		cut.Cluster, cut.Watches = "c", []checkpoint.WatchCut{{ID: "w", Reset: reset, Put: []*event.Object{o}}}
		cut.Routes = []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 1, Delta: &event.Delta{New: o}}}}}
		must.Succeed(f, leader.Commit(&cut, map[string][]*event.Object{"w": {o}}))
	}
	must.Succeed(f, leader.Close())
	for i := range l.frames {
		f.Add(l.frames[i].Append(nil))
		f.Add(append([]byte{0}, l.frames[i].Ops...))
	}
	db := openConfig(f, checkpoint.Config{Path: copied})
	defer db.Close()
	own := db.Position()
	f.Fuzz(func(t *testing.T, data []byte) {
		fr, err := checkpoint.DecodeFrame(data)
		if err != nil && len(data) > 0 { // the operations alone
			fr, err = checkpoint.Frame{Ops: data[1:]}, nil
		}
		if err != nil {
			return
		}
		fr.Position, fr.Before = checkpoint.Position{Term: own.Term, Number: own.Number + 1}, own.Term
		fr.Seal.Sum = 1 // never the right one
		if db.Apply(fr) == nil || db.Position() != own {
			t.Fatal("applied", db.Position())
		}
	})
}

// Without a fleet a transaction makes no frame and costs nothing more.
func TestShippingAllocations(t *testing.T) {
	measure := func(cfg checkpoint.Config) float64 {
		cfg.Path = statePath(t)
		db := openConfig(t, cfg)
		defer db.Close()
		return testing.AllocsPerRun(50, func() { must.Succeed(t, db.Write(value(1))) })
	}
	without := measure(checkpoint.Config{})
	with := measure(checkpoint.Config{Term: 1, Shipped: func(checkpoint.Frame) {}})
	t.Logf("%v allocations for a transaction, %v with shipping", without, with)
	if with < without+3 {
		t.Errorf("%v allocations without shipping, %v with it: something is made in either case", without, with)
	}
}
