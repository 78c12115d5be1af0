package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// backupCuts returns the cuts of a test, the first of which make room for the others: the file need
// not grow while it is copied.
func backupCuts(t *testing.T, n int) (cuts []checkpoint.Cut) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	pods := resource("", "pods")
	big := checkpoint.WatchCut{ID: "big", Applied: "1"}
	for i := range 300 {
		name := fmt.Sprint("big", i)
		big.Put = append(big.Put, object(t, pods, name, name, "1", randomText(5000, uint64(i))))
	}
	cuts = append(cuts, checkpoint.Cut{Watches: []checkpoint.WatchCut{big}}, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "big", Applied: "2", Reset: true}}})
	for i := range n {
		w, r := checkpoint.WatchCut{ID: "w", Applied: fmt.Sprint(i)}, checkpoint.RouteCut{Name: "r"}
		for range 1 + random.IntN(4) {
			o := object(t, pods, fmt.Sprintf("n%d", random.IntN(30)), fmt.Sprintf("u%d", random.IntN(60)), "1", randomText(random.IntN(300), random.Uint64()))
			w.Put = append(w.Put, o)
			r.Put = append(r.Put, checkpoint.Pending{ID: uint64(random.IntN(40) + 1), Delta: &event.Delta{Source: "s", Op: event.Added, New: o}})
			r.Removed = append(r.Removed, uint64(random.IntN(40)+1))
		}
		cuts = append(cuts, checkpoint.Cut{Cluster: fmt.Sprint("c", i), Watches: []checkpoint.WatchCut{w}, Routes: []checkpoint.RouteCut{r}})
	}
	return cuts
}

func dumpAll(t *testing.T, db *checkpoint.DB) string {
	t.Helper()
	return dump(t, db, []string{"big", "w"}, []string{"r"})
}

// statesOf returns the content of a file after each cut.
func statesOf(t *testing.T, cuts []checkpoint.Cut) (states []string) {
	t.Helper()
	db := open(t, statePath(t))
	states = append(states, dumpAll(t, db))
	for _, cut := range cuts {
		write(t, db, cut)
		states = append(states, dumpAll(t, db))
	}
	return states
}

// contentOf returns the content of a backup, which must be intact.
func contentOf(t *testing.T, path string) string {
	t.Helper()
	db, err := checkpoint.OpenReadOnly(path)
	must.Succeed(t, err)
	defer func() { must.Report(t, db.Close()) }()
	return dumpAll(t, db)
}

// hookedWriter calls a function before each write.
type hookedWriter struct {
	io.Writer

	before func()
}

func (w hookedWriter) Write(p []byte) (int, error) {
	w.before()
	return w.Writer.Write(p)
}

// TestBackupBetweenWrites writes a cut between any two parts of a backup: it has the state of its
// beginning.
func TestBackupBetweenWrites(t *testing.T) {
	// Guarantee: backup
	cuts := backupCuts(t, 60)
	states := statesOf(t, cuts)
	path := statePath(t)
	db := open(t, path)
	next := 0
	writeNext := func() {
		if next < len(cuts) {
			write(t, db, cuts[next])
			next++
		}
	}
	for next < 5 { // the first cuts make room
		writeNext()
	}
	for next < len(cuts) {
		at := next
		copied := filepath.Join(t.TempDir(), "backup.db")
		file, err := os.Create(copied)
		must.Succeed(t, err)
		left := 7
		err = db.CopyTo(t.Context(), hookedWriter{file, func() {
			if left--; left > 0 {
				writeNext()
			}
		}})
		must.Succeed(t, errors.Join(err, file.Close()))
		if next == at {
			t.Fatal("no cut was written during the backup: this test shows nothing")
		}
		if got := contentOf(t, copied); got != states[at] {
			t.Errorf("the backup of cut %d has another content; that of a later cut: %v", at, slices.Contains(states[at:], got))
		}
	}
	if got := dumpAll(t, db); got != states[len(cuts)] {
		t.Error("a backup has changed the state file")
	}
	reopen(t, db, path)
}

// TestBackupDuringWrites makes backups while another goroutine writes: each equals the state after
// one of the cuts, no backup is older than the one before, and each can be restored.
func TestBackupDuringWrites(t *testing.T) {
	// Guarantee: backup
	cuts := backupCuts(t, 100)
	states := statesOf(t, cuts)
	path := statePath(t)
	db := open(t, path)
	var writer sync.WaitGroup
	done := make(chan struct{})
	writer.Go(func() {
		defer close(done)
		for _, cut := range cuts {
			must.Report(t, db.Write(cut))
		}
	})
	at := 0
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		restored := filepath.Join(t.TempDir(), "state.db")
		backUp(t, db, restored)
		got := contentOf(t, restored)
		before := at
		for at < len(states) && states[at] != got {
			at++
		}
		if at == len(states) {
			t.Fatalf("the backup is no state after cut %d", before)
		}
		again := open(t, restored)
		if again.Quarantined() != "" || dumpAll(t, again) != got {
			t.Error("a restored backup has another content")
		}
		must.Succeed(t, again.Close())
	}
	writer.Wait()
	if at != len(cuts) {
		t.Errorf("the last backup is that of cut %d of %d", at, len(cuts))
	}
	if left, _ := filepath.Glob(path + ".backup*"); len(left) > 0 {
		t.Errorf("there is still %q", left)
	}
}

// backUp writes a backup to a file.
func backUp(t *testing.T, db *checkpoint.DB, to string) {
	t.Helper()
	b, err := db.Backup(t.Context())
	must.Succeed(t, err)
	text, err := io.ReadAll(b)
	must.Succeed(t, errors.Join(err, b.Close()))
	if int64(len(text)) != b.Size || b.Written.IsZero() {
		t.Errorf("%d bytes instead of %d, written %v", len(text), b.Size, b.Written)
	}
	must.Succeed(t, os.WriteFile(to, text, 0o600))
}

// TestBackupAlone: there is one backup at a time; an interrupted one leaves no file, and the file
// of a killed one is removed.
func TestBackupAlone(t *testing.T) {
	path := statePath(t)
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Succeed(t, os.WriteFile(path+".backup", []byte("killed"), 0o600))
	db := open(t, path)
	if _, err := os.Stat(path + ".backup"); err == nil {
		t.Error("the start has left the file of a killed backup")
	}
	b, err := db.Backup(t.Context())
	must.Succeed(t, err)
	if _, err := db.Backup(t.Context()); !errors.Is(err, checkpoint.ErrBackupRuns) {
		t.Error(err)
	}
	must.Succeed(t, b.Close())
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the router stops"))
	_, err = db.Backup(stopped)
	must.Fail(t, err, "the router stops")
	if _, err := os.Stat(path + ".backup"); err == nil {
		t.Error("an interrupted backup has left its file")
	}
	must.Succeed(t, db.Close())
	if _, err := db.Backup(t.Context()); !errors.Is(err, checkpoint.ErrClosed) {
		t.Error(err)
	}
}
