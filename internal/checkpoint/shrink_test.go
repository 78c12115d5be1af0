package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// roomy writes a mostly free state file, and returns its content.
func roomy(t *testing.T, path string) (want string) {
	t.Helper()
	db := open(t, path)
	r := resource("", "pods")
	var gone []checkpoint.Identity
	text := randomText(5<<20, 1)
	for batch := range 6 {
		cut := checkpoint.WatchCut{ID: "w", Applied: "1"}
		for i := range 4 {
			name := fmt.Sprintf("big-%d-%d", batch, i)
			cut.Put = append(cut.Put, object(t, r, name, name, "1", text))
			gone = append(gone, identity(name, name))
		}
		write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
	}
	var kept checkpoint.WatchCut
	kept.ID, kept.Applied = "w", "2"
	kept.Deleted = gone[1:]
	owed := checkpoint.RouteCut{Name: "r"}
	for i := range 50 {
		o := object(t, r, fmt.Sprint("o", i), fmt.Sprint("u", i), "1", randomText(500, uint64(i)))
		kept.Put = append(kept.Put, o)
		owed.Put = append(owed.Put, checkpoint.Pending{ID: uint64(i + 1), Delta: &event.Delta{Source: "s", Op: event.Added, New: o}})
	}
	write(t, db, checkpoint.Cut{Cluster: "c", Watches: []checkpoint.WatchCut{kept}, Routes: []checkpoint.RouteCut{owed}})
	add(t, openLetters(t, db, checkpoint.LettersConfig{}), letter(t, "r", "n", time.Unix(1, 0)))
	must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": {intent("i", "v")}}))
	want = dump(t, db, []string{"w"}, []string{"r"})
	must.Succeed(t, db.Close())
	return want
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must.Succeed(t, err)
	return info.Size()
}

// TestShrink: a mostly free file is rewritten when it is opened. It is made once, because that
// takes longest.
func TestShrink(t *testing.T) {
	// Guarantee: state-shrinks
	whole := statePath(t)
	want := roomy(t, whole)
	if size := sizeOf(t, whole); size < 64<<20 {
		t.Fatalf("the file has %d bytes", size)
	}
	t.Run("interrupted", func(t *testing.T) { shrinks(t, whole, want) })
	t.Run("killed", func(t *testing.T) { killedWhileShrinking(t, whole, want) })
	t.Run("no room", func(t *testing.T) { noRoomToShrink(t, whole, want) })
}

// shrinks: also after an earlier start was interrupted during the rewrite; a second start leaves
// the file alone.
func shrinks(t *testing.T, whole, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	copyFile(t, whole, path)
	before := sizeOf(t, path)
	must.Succeed(t, os.WriteFile(path+".compact", []byte("half of it"), 0o600))
	log, said := logger()
	for i := range 2 {
		db, err := checkpoint.Open(checkpoint.Config{Path: path, MaxSize: 100 << 20, Log: log})
		must.Succeed(t, err)
		if got := dump(t, db, []string{"w"}, []string{"r"}); got != want || db.Quarantined() != "" {
			t.Errorf("what it holds has changed: %d bytes of description, want %d", len(got), len(want))
		}
		if size := db.Size(); size > before/2 {
			t.Errorf("it has %d bytes, before %d", size, before)
		}
		if lines := strings.Count(said.String(), "was rewritten without it"); lines != 1 || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("open %d: the log says %s", i, said)
		}
		if i == 1 {
			write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "3"}}})
		}
		must.Succeed(t, db.Close())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := os.Stat(path + ".compact"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the copy is there still", err)
	}
}

// killedWhileShrinking kills a process at random moments of a rewrite: the result is the old file
// or the new one.
func killedWhileShrinking(t *testing.T, whole, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	outcome := make(map[string]int)
	for i := range effort.Rounds(3, 10, 300) {
		copyFile(t, whole, path)
		before := sizeOf(t, path)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CHECKPOINT_HOLD="+path)
		var out bytes.Buffer
		cmd.Stdout = &out
		in, err := cmd.StdinPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		in.Close()
		_, err = os.Stat(path + ".compact")
		switch size := sizeOf(t, path); {
		case err == nil:
			outcome["half"]++
		case size < before:
			outcome["new"]++
		default:
			outcome["old"]++
		}
		db := open(t, path)
		if got := dump(t, db, []string{"w"}, []string{"r"}); got != want || db.Quarantined() != "" {
			t.Fatalf("kill %d: what it holds has changed (%s)", i, db.Quarantined())
		}
		db.Close()
	}
	t.Log(outcome)
}

// TestAsideIsBounded: the newest three of the quarantined files are kept.
func TestAsideIsBounded(t *testing.T) {
	// Guarantee: damaged-state
	folder := filepath.Join(t.TempDir(), "a[b]*c")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "state.db")
	other := filepath.Join(folder, "state.db.corruption") // of another program
	old := path + ".corrupt-20990101T000000.000Z"         // the clock was wrong then
	for _, name := range []string{other, old} {
		must.Succeed(t, os.WriteFile(name, nil, 0o600))
	}
	var aside []string
	for range 6 {
		must.Succeed(t, os.WriteFile(path, []byte("no database"), 0o600))
		db := open(t, path)
		db.Close()
		if db.Quarantined() == "" {
			t.Fatal("it was not moved away")
		}
		aside = append(aside, db.Quarantined())
		<-time.After(2 * time.Millisecond) // the names have milliseconds
	}
	for i, name := range append(aside, old, other) {
		_, err := os.Stat(name)
		if kept := err == nil; kept != (i >= 4) {
			t.Errorf("%s: kept: %v", filepath.Base(name), kept)
		}
	}
}
