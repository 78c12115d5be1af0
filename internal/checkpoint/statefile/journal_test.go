package statefile

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/test/must"
)

// newJournal returns the journal of a new state file.
func newJournal(t testing.TB, dir string) *Journal {
	f, err := Open(Config{Path: filepath.Join(dir, "state.db"), Log: slog.New(slog.DiscardHandler), Opened: func(*bbolt.Tx, *Codec) error { return nil }})
	must.Succeed(t, err)
	j, err := f.Journal()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = j.Close(); _ = f.Close() })
	return j
}

func (j *Journal) appendTexts(t testing.TB, texts ...string) {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	must.Succeed(t, j.Append(all))
}

func (j *Journal) texts(t testing.TB, generation uint64) (all []string, lost int) {
	lost, err := j.Read(generation, func(payload []byte) error {
		all = append(all, string(payload))
		return nil
	})
	must.Succeed(t, err)
	return all, lost
}

// TestJournal: a journal has the records of its generation, and those of no other one.
func TestJournal(t *testing.T) {
	j := newJournal(t, t.TempDir())
	long := string(bytes.Repeat([]byte("long"), 5000))
	j.Begin(1)
	j.appendTexts(t, "a", "", long)
	j.appendTexts(t, "b")
	want := []string{"a", "", long, "b"}
	if got, lost := j.texts(t, 1); !slices.Equal(got, want) || lost != 0 {
		t.Errorf("%d records, %d lost", len(got), lost)
	}
	j.appendTexts(t, "c") // behind the last one that was read
	if got, _ := j.texts(t, 1); !slices.Equal(got, append(want, "c")) {
		t.Errorf("%d records after another append", len(got))
	}
	for _, generation := range []uint64{2, 0} {
		if got, lost := j.texts(t, generation); len(got) > 0 || lost > 0 {
			t.Errorf("generation %d: %d records, %d lost", generation, len(got), lost)
		}
	}
	j.Begin(2)
	j.appendTexts(t, "d")
	if got, _ := j.texts(t, 2); !slices.Equal(got, []string{"d"}) {
		t.Errorf("the next generation has %q", got)
	}
}

// TestJournalDamaged: an incomplete last record does not count, and a damaged one costs no others.
func TestJournalDamaged(t *testing.T) {
	j := newJournal(t, t.TempDir())
	j.Begin(7)
	j.appendTexts(t, "first", "second", "third")
	intact, err := os.ReadFile(j.path)
	must.Succeed(t, err)
	size := len(intact) / 3 // the texts are nearly as long
	for name, c := range map[string]struct {
		damage func(text []byte) []byte
		want   []string
		lost   int
	}{
		"cut":              {func(text []byte) []byte { return text[:len(text)-1] }, []string{"first", "second"}, 0},
		"a bit in it":      {func(text []byte) []byte { text[size+size/2] ^= 1; return text }, []string{"first", "third"}, 1},
		"a bit at the end": {func(text []byte) []byte { text[len(text)-1] ^= 1; return text }, []string{"first", "second"}, 0},
		"its length":       {func(text []byte) []byte { text[0] = 255; return text }, nil, 0},
		"zeros behind it":  {func(text []byte) []byte { return append(text, make([]byte, 100)...) }, []string{"first", "second", "third"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			must.Succeed(t, os.WriteFile(j.path, c.damage(bytes.Clone(intact)), 0o600))
			if got, lost := j.texts(t, 7); !slices.Equal(got, c.want) || lost != c.lost {
				t.Errorf("got %q and %d lost, want %q and %d", got, lost, c.want, c.lost)
			}
		})
	}
}

// TestJournalReplaced: an append to a file that is no longer at its path is an error.
func TestJournalReplaced(t *testing.T) {
	j := newJournal(t, t.TempDir())
	must.Succeed(t, os.Remove(j.path))
	must.Fail(t, j.Append([][]byte{[]byte("a")}), "was removed or replaced")
}

// FuzzJournal: no content of the file makes Read fail or take more than the file has, and a record
// that is appended behind it is read again.
func FuzzJournal(f *testing.F) {
	j := newJournal(f, f.TempDir())
	j.Begin(3)
	j.appendTexts(f, "one", "two")
	text, err := os.ReadFile(j.path)
	must.Succeed(f, err)
	f.Add(text)
	f.Add(text[:len(text)-2])
	f.Add(append([]byte{5, 0, 0, 0, 0}, text...))
	f.Fuzz(func(t *testing.T, content []byte) {
		must.Succeed(t, os.WriteFile(j.path, content, 0o600))
		before, _ := j.texts(t, 3)
		size := 0
		for _, text := range before {
			size += len(text) + lengthBytes + header
		}
		if size > len(content) {
			t.Fatalf("%d bytes of %d", size, len(content))
		}
		added := fmt.Sprint("added", len(content))
		j.appendTexts(t, added)
		if after, _ := j.texts(t, 3); len(after) <= len(before) || after[len(before)] != added {
			t.Fatalf("%q, then %q", before, after)
		}
	})
}
