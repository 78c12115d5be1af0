package checkpoint_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// populate writes a state of several hundred pages in several cuts, and returns the state after
// each of the last two.
func populate(t *testing.T, path string) (before, after string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	pods := resource("", "pods")
	text := func() string {
		b := make([]byte, random.IntN(1200))
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789+-"[random.IntN(38)]
		}
		return string(b)
	}
	db := open(t, path)
	letters := openLetters(t, db, checkpoint.LettersConfig{Max: 50})
	for round := range 6 {
		w, r := checkpoint.WatchCut{ID: "w", Applied: strconv.Itoa(round)}, checkpoint.RouteCut{Name: "r"}
		for i := range 150 {
			o := object(t, pods, fmt.Sprintf("n%d", random.IntN(400)), fmt.Sprintf("u%d", random.IntN(1000)), "1", text())
			w.Put = append(w.Put, o)
			if i%5 == 0 {
				r.Put = append(r.Put, checkpoint.Pending{ID: uint64(round*100 + i), Delta: &event.Delta{Source: "s", Op: event.Added, New: o}})
			}
			if i%7 == 0 {
				r.Removed = append(r.Removed, uint64(random.IntN(round*100+100)))
			}
		}
		write(t, db, checkpoint.Cut{Cluster: "c", Watches: []checkpoint.WatchCut{w}, Routes: []checkpoint.RouteCut{r}})
		var intents []*event.Object
		for i := range 50 {
			intents = append(intents, object(t, resource("", "pods"), fmt.Sprintf("i%d", i), fmt.Sprintf("u%d", round), "1", text()))
		}
		put := make([]checkpoint.Letter, 20)
		for i := range put {
			put[i] = letter(t, "r", fmt.Sprintf("n%d", i), time.Unix(int64(round), 0))
			put[i].Error = text()
		}
		add(t, letters, put...)
		before = dump(t, db, []string{"w"}, []string{"r"})
		must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": intents}))
	}
	after = dump(t, db, []string{"w"}, []string{"r"})
	must.Succeed(t, db.Close())
	return before, after
}

// TestDamage flips bits in a file and truncates it at random places. Each time it is opened with
// its state, or is moved away and replaced by an empty one, or, if the newer of the two meta pages
// was hit, has the state of one transaction earlier.
func TestDamage(t *testing.T) {
	// Guarantee: damaged-state
	whole := filepath.Join(t.TempDir(), "state.db")
	before, after := populate(t, whole)
	good, err := os.ReadFile(whole)
	must.Succeed(t, err)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	count := map[string]int{}
	for i := range effort.Rounds(100, 2000, 50000) {
		bad := slices.Clone(good)
		what := ""
		switch random.IntN(6) {
		case 0:
			n := random.IntN(len(bad))
			bad, what = bad[:n], fmt.Sprintf("cut at %d", n)
		case 1: // near the beginning of a page, where its structure is
			at := random.IntN(len(bad)/4096)*4096 + random.IntN(64)
			bad[at] ^= 1 << random.IntN(8)
			what = fmt.Sprintf("bit at %d, in a header", at)
		case 2:
			at := random.IntN(len(bad)/512) * 512
			for j := range min(512, len(bad)-at) {
				bad[at+j] = byte(random.Uint32())
			}
			what = fmt.Sprintf("sector at %d", at)
		case 3: // a page that was written elsewhere, or not at all
			at, from := random.IntN(len(bad)/4096)*4096, random.IntN(len(bad)/4096)*4096
			copy(bad[at:at+4096], good[from:from+4096])
			what = fmt.Sprintf("page at %d from %d", at, from)
		default:
			at := random.IntN(len(bad))
			bad[at] ^= 1 << random.IntN(8)
			what = fmt.Sprintf("bit at %d", at)
		}
		count[damaged(t, bad, what, before, after)]++
		if t.Failed() {
			t.Fatalf("place %d", i)
		}
	}
	t.Log(count)
	if count["unharmed"] == 0 || count["quarantined"] == 0 {
		t.Error("the places were not well chosen")
	}
}

// damaged opens a file with the content and reports the result.
func damaged(t *testing.T, content []byte, what, before, after string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	log, said := logger()
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Log: log})
	if err != nil {
		var newer *checkpoint.NewerError
		if !errors.As(err, &newer) {
			t.Errorf("%s: %v", what, err)
		}
		return "refused"
	}
	defer db.Close()
	got := dump(t, db, []string{"w"}, []string{"r"})
	lines := strings.Count(said.String(), "\n")
	became := "unharmed"
	switch {
	case db.Quarantined() != "":
		became = "quarantined"
		kept, err := os.ReadFile(db.Quarantined())
		if err != nil || string(kept) != string(content) || got != "cluster \n" || lines != 1 || !strings.Contains(said.String(), "level=ERROR") {
			t.Errorf("%s: moved away %v, log %s", what, err, said)
		}
	case got == before:
		became = "as before"
		if lines != 1 || !strings.Contains(said.String(), "level=WARN") {
			t.Errorf("%s: fell back and logged %s", what, said)
		}
	case got != after:
		t.Errorf("%s: a state that never was", what)
	}
	// A write succeeds, and the file is intact afterwards.
	write(t, db, checkpoint.Cut{Cluster: "next", Watches: []checkpoint.WatchCut{{ID: "w", Applied: "next", Put: []*event.Object{object(t, resource("", "pods"), "n1", "u", "9", "next")}}}})
	want := dump(t, db, []string{"w"}, []string{"r"})
	if err := db.Close(); err != nil {
		t.Error(what, err)
	}
	again, err := checkpoint.Open(checkpoint.Config{Path: path})
	if err != nil {
		t.Fatalf("%s: after a write: %v", what, err)
	}
	defer again.Close()
	if dump(t, again, []string{"w"}, []string{"r"}) != want || again.Quarantined() != "" && db.Quarantined() == "" {
		t.Errorf("%s: after a write it is another", what)
	}
	return became
}

// Both meta pages, one after the other: without one the file is usable, without both it is not.
func TestMetaPages(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "state.db")
	before, after := populate(t, whole)
	good, err := os.ReadFile(whole)
	must.Succeed(t, err)
	spoil := func(pages ...int) string {
		bad := slices.Clone(good)
		for _, page := range pages {
			bad[page*4096+40] ^= 1
		}
		return damaged(t, bad, fmt.Sprint("meta ", pages), before, after)
	}
	one, other := spoil(0), spoil(1)
	if !(one == "as before" && other == "unharmed" || one == "unharmed" && other == "as before") || spoil(0, 1) != "quarantined" {
		t.Error(one, other)
	}
}

func TestEmptyAndForeignFiles(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "short": "x", "text": strings.Repeat("this is no database\n", 5000), "zeros": strings.Repeat("\x00", 100_000),
	} {
		if became := damaged(t, []byte(content), name, "", ""); became != "quarantined" {
			t.Errorf("%s: %s", name, became)
		}
	}
}
