package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func openLetters(t must.T, db *checkpoint.DB, cfg checkpoint.LettersConfig) *checkpoint.Letters {
	letters, err := db.Letters(cfg)
	must.Succeed(t, err)
	return letters
}

func letter(t testing.TB, route, name string, at time.Time) checkpoint.Letter {
	t.Helper()
	r := resource("", "pods")
	return checkpoint.Letter{
		Time: at, Route: route, Sink: "hook", Error: "HTTP 400", Attempts: 4, Unseen: name == "unseen",
		Delta: &event.Delta{Source: "s", Op: event.Updated, Old: object(t, r, name, "u", "1", "old"), New: object(t, r, name, "u", "2", "new"), Seen: at, Event: fedEvent(`{}`)},
	}
}

func add(t must.T, l *checkpoint.Letters, letters ...checkpoint.Letter) {
	must.Succeed(t, l.Add(context.Background(), letters))
}

func load(t must.T, l *checkpoint.Letters, ids ...uint64) []checkpoint.Letter {
	got, err := l.Load(ids)
	must.Succeed(t, err)
	return got
}

func describeLetter(l checkpoint.Letter) string {
	return fmt.Sprintf("%d %s %s %s %q %v %s\n%s", l.ID, l.Time.UTC().Format(time.RFC3339Nano), l.Route, l.Sink, l.Error, l.Unseen, l.Call,
		describe(l.Route, checkpoint.Pending{ID: l.ID, Delta: l.Delta, Attempts: l.Attempts}))
}

func TestLetters(t *testing.T) {
	// Guarantee: dead-letters-kept
	path := statePath(t)
	db := open(t, path)
	counts := map[string]int{}
	cfg := checkpoint.LettersConfig{Count: func(route string, n int) { counts[route] = n }}
	l := openLetters(t, db, cfg)
	now := time.Now()
	want := []checkpoint.Letter{letter(t, "a", "x", now), letter(t, "b", "unseen", now), letter(t, "a", "z", now)}
	want[1].Call = []byte(`{"handler":"h"}`)
	add(t, l, want...)
	for i := range want {
		want[i].ID = uint64(i + 1)
	}
	for range 2 {
		got := load(t, l, 1, 2, 3, 4)
		if len(got) != 3 {
			t.Fatalf("%d letters", len(got))
		}
		for i := range got {
			if g, w := describeLetter(got[i]), describeLetter(want[i]); g != w {
				t.Errorf("got\n%swant\n%s", g, w)
			}
		}
		if all, a, two := l.IDs("", 0, 0), l.IDs("a", 0, 0), l.IDs("", 1, 1); !slices.Equal(all, []uint64{1, 2, 3}) || !slices.Equal(a, []uint64{1, 3}) || !slices.Equal(two, []uint64{2}) {
			t.Error(all, a, two)
		}
		if counts["a"] != 2 || counts["b"] != 1 {
			t.Error(counts)
		}
		clear(counts)
		db = reopen(t, db, path)
		l = openLetters(t, db, cfg)
	}
	if n, err := l.Remove(t.Context(), []uint64{3, 7, 3, 1}); n != 2 || err != nil || counts["a"] != 0 {
		t.Error(n, err, counts)
	}
	db = reopen(t, db, path)
	l = openLetters(t, db, cfg)
	add(t, l, letter(t, "a", "x", now))
	if ids := l.IDs("", 0, 0); !slices.Equal(ids, []uint64{2, 4}) {
		t.Errorf("a number was given again: %v", ids)
	}
}

func TestLettersOfSecrets(t *testing.T) {
	// Guarantee: secrets-off-disk
	path := statePath(t)
	db := open(t, path)
	l := openLetters(t, db, checkpoint.LettersConfig{})
	o := object(t, resource("", "secrets"), "s", "u", "1", "CANARY")
	add(t, l, checkpoint.Letter{Route: "r", Delta: &event.Delta{Source: "s", Op: event.Deleted, Old: o}})
	got := load(t, l, 1)[0].Delta.Old
	if got.Key() != o.Key() || got.UID() != "u" || strings.Contains(string(got.JSON()), "CANARY") {
		t.Errorf("got %s", got.JSON())
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "CANARY") {
		t.Error("the data of a secret is on disk", err)
	}
}

func TestLettersAreBounded(t *testing.T) {
	// Guarantee: dead-letters-kept
	db := open(t, statePath(t))
	lost := map[string]int{}
	cfg := checkpoint.LettersConfig{Max: 3, MaxAge: time.Hour, Lost: func(route, reason string, n int) { lost[route+" "+reason] += n }}
	l := openLetters(t, db, cfg)
	now := time.Now()
	old := letter(t, "a", "old", now.Add(-59*time.Minute))
	add(t, l, old, letter(t, "a", "x", now), letter(t, "b", "x", now))
	if err := l.Expire(t.Context(), now.Add(2*time.Minute)); err != nil || lost["a age"] != 1 || len(l.IDs("", 0, 0)) != 2 {
		t.Error(err, lost, l.IDs("", 0, 0))
	}
	var flood []checkpoint.Letter
	for range 5 {
		flood = append(flood, letter(t, "a", "x", now))
	}
	add(t, l, flood...)
	if ids := l.IDs("", 0, 0); !slices.Equal(ids, []uint64{3, 6, 7, 8}) || lost["a count"] != 3 || len(lost) != 2 {
		t.Error(ids, lost)
	}
	if got := load(t, l, 2, 4, 5, 8); len(got) != 1 {
		t.Errorf("%d are there", len(got))
	}
}

// Concurrent calls share transactions, and each dead letter is on disk when its Add returns.
func TestLettersTogether(t *testing.T) {
	db := open(t, statePath(t))
	l := openLetters(t, db, checkpoint.LettersConfig{})
	var writers sync.WaitGroup
	for i := range 64 {
		one := letter(t, "r", fmt.Sprintf("n%d", i), time.Now())
		writers.Go(func() { add(t, l, one) })
	}
	writers.Wait()
	ids := l.IDs("r", 0, 0)
	names := map[string]bool{}
	for _, letter := range load(t, l, ids...) {
		names[letter.Delta.Key().Name] = true
	}
	if len(ids) != 64 || len(names) != 64 {
		t.Error(len(ids), len(names))
	}
	if err := l.Add(t.Context(), []checkpoint.Letter{{Route: "r", Delta: &event.Delta{}}}); err == nil {
		t.Error("a letter without an object was taken")
	}
	db.Close()
	if err := l.Add(t.Context(), []checkpoint.Letter{letter(t, "r", "x", time.Now())}); !errors.Is(err, checkpoint.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestLettersModel compares the dead letters with a map, also after crashes and restarts, with cuts
// in between.
func TestLettersModel(t *testing.T) {
	template := []checkpoint.Letter{letter(t, "r1", "x", time.Unix(1, 0)), letter(t, "r2", "y", time.Unix(2, 0))}
	rapid.Check(t, func(t *rapid.T) {
		folder, err := os.MkdirTemp("", "letters") //nolint:usetesting // one for each run
		must.Succeed(t, err)
		defer os.RemoveAll(folder)
		ctx, path := t.Context(), filepath.Join(folder, "state.db")
		db := reopenModel(t, nil, path)
		defer func() { db.Close() }()
		cfg := checkpoint.LettersConfig{Max: rapid.SampledFrom([]int{0, 1, 30}).Draw(t, "max")}
		l := openLetters(t, db, cfg)
		last, model := uint64(0), map[uint64]string{}
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				gone := rapid.SliceOfN(rapid.Uint64Range(1, last+1), 1, 20).Draw(t, "gone")
				if _, err := l.Remove(ctx, gone); err != nil {
					t.Fatal(err)
				}
				for _, id := range gone {
					delete(model, id)
				}
			case 1:
				must.Succeed(t, db.Write(drawCut(t)))
			default:
				var letters []checkpoint.Letter
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					one := rapid.SampledFrom(template).Draw(t, "letter")
					one.Error = strings.Repeat("e", rapid.SampledFrom([]int{0, 10, 5000}).Draw(t, "size"))
					letters = append(letters, one)
				}
				add(t, l, letters...)
				for _, one := range letters {
					last++
					one.ID = last
					model[last] = describeLetter(one)
				}
				trim(model, cfg.Max)
			}
			checkLetters(t, l, model)
			copied := filepath.Join(folder, "copy.db")
			copyFile(t, path, copied)
			crashed := reopenModel(t, nil, copied)
			checkLetters(t, openLetters(t, crashed, cfg), model)
			crashed.Close()
			if rapid.Bool().Draw(t, "restart") {
				db = reopenModel(t, db, path)
				l = openLetters(t, db, cfg)
			}
		}
	})
}

// trim keeps the newest dead letters of each route.
func trim(model map[uint64]string, most int) {
	for _, route := range []string{" r1 ", " r2 "} {
		var ids []uint64
		for id, text := range model {
			if strings.Contains(text, route) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for most > 0 && len(ids) > most {
			delete(model, ids[0])
			ids = ids[1:]
		}
	}
}

func checkLetters(t *rapid.T, l *checkpoint.Letters, model map[uint64]string) {
	ids := l.IDs("", 0, 0)
	if len(ids) != len(model) {
		t.Fatalf("%d letters, want %d", len(ids), len(model))
	}
	for _, letter := range load(t, l, ids...) {
		if got := describeLetter(letter); got != model[letter.ID] {
			t.Fatalf("got\n%swant\n%s", got, model[letter.ID])
		}
	}
}

// TestImport shows that imported dead letters and the position behind them are written together,
// and that other writes keep the position.
func TestImport(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	l := openLetters(t, db, checkpoint.LettersConfig{})
	if l.Imported() != (checkpoint.LettersSource{}) {
		t.Error("a new state has a position")
	}
	now := time.Now()
	add(t, l, letter(t, "a", "x", now))
	at := checkpoint.LettersSource{Stream: 17, Seq: 4}
	want := letter(t, "b", "y", now)
	decoded, err := checkpoint.DecodeLetter(checkpoint.EncodeLetter(&want))
	must.Succeed(t, err)
	must.Succeed(t, l.Import(t.Context(), []checkpoint.Letter{decoded}, at))
	add(t, l, letter(t, "a", "z", now))
	_, err = l.Remove(t.Context(), []uint64{1})
	must.Succeed(t, err)
	must.Succeed(t, db.Close())
	l = openLetters(t, open(t, path), checkpoint.LettersConfig{})
	if ids := l.IDs("", 0, 0); l.Imported() != at || !slices.Equal(ids, []uint64{2, 3}) {
		t.Errorf("position %v, letters %v", l.Imported(), ids)
	}
	want.ID = 2
	if got := load(t, l, 2); describeLetter(got[0]) != describeLetter(want) {
		t.Errorf("got %s\nwant %s", describeLetter(got[0]), describeLetter(want))
	}
}
