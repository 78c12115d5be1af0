package checkpoint_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// logs appends an intent to the journal, and reports whether that is possible.
func logs(t *testing.T, db *checkpoint.DB, o *event.Object) bool {
	t.Helper()
	ok, err := db.Log(map[string][]*event.Object{"w": {o}})
	must.Succeed(t, err)
	return ok
}

// crashed returns the state that a start finds after a crash: in copies of the files.
func crashed(t *testing.T, path string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "state.db")
	copyFile(t, path, copied)
	copyFile(t, path+".journal", copied+".journal")
	db := open(t, copied)
	defer db.Close()
	return dump(t, db, []string{"w"}, nil)
}

// readOnly returns the state of copies of the files that are only read.
func readOnly(t *testing.T, path string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "state.db")
	for _, name := range []string{"", ".lock", ".journal"} {
		copyFile(t, path+name, copied+name)
	}
	db, err := checkpoint.OpenReadOnly(copied)
	must.Succeed(t, err)
	defer db.Close()
	survey, err := db.Survey()
	must.Succeed(t, err)
	text := dump(t, db, []string{"w"}, nil)
	if n := strings.Count(text, "intent "); survey.Watches[0].Intents != n {
		t.Errorf("the survey counts %d intents, not %d", survey.Watches[0].Intents, n)
	}
	return text
}

// TestLog: a logged intent is there after a crash, until a cut has its object or ends it; then it
// is not read again, although the journal still has it.
func TestLog(t *testing.T) {
	// Guarantee: delete-has-state
	path := statePath(t)
	db := open(t, path)
	a, b := object(t, resource("", "pods"), "a", "u1", "5", "new"), object(t, resource("", "secrets"), "b", "u2", "6", "secret")
	if logs(t, db, a) {
		t.Error("an intent is logged before the first cut")
	}
	write(t, db, checkpoint.Cut{Cluster: "c", Watches: []checkpoint.WatchCut{{ID: "w", Applied: "4"}}})
	empty := crashed(t, path)
	if !logs(t, db, a) || !logs(t, db, b) {
		t.Fatal("intents are not logged")
	}
	want := empty + "  intent ns/a u1 " + string(a.JSON()) + "\n  intent ns/b u2\n"
	if got := crashed(t, path); got != want {
		t.Errorf("after a crash:\n%swant\n%s", got, want)
	}
	if got := readOnly(t, path); got != want {
		t.Errorf("a copy that is only read has\n%swant\n%s", got, want)
	}
	if text, err := os.ReadFile(path + ".journal"); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("the journal has data of a Secret, or cannot be read: %v", err)
	}

	// One of them is deleted, and a cut has the other one.
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "7", Put: []*event.Object{b}, Deleted: []checkpoint.Identity{identity("a", "u1")}}}})
	if got := crashed(t, path); strings.Contains(got, "intent") {
		t.Errorf("after a cut that ends them:\n%s", got)
	}
	// A later state than that of the cut is still an intent.
	later := object(t, resource("", "pods"), "c", "u3", "9", "later")
	if !logs(t, db, later) {
		t.Fatal("an intent is not logged after a cut")
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "8", Put: []*event.Object{object(t, resource("", "pods"), "c", "u3", "8", "earlier")}}}})
	if got := crashed(t, path); !strings.Contains(got, "intent ns/c u3") {
		t.Errorf("a later state than that of the cut is lost:\n%s", got)
	}
}

// TestLogRestart: the intents of a former run are in the file, in their order, and the next ones
// are logged behind them.
func TestLogRestart(t *testing.T) {
	// Guarantee: delete-has-state
	path := statePath(t)
	db := open(t, path)
	write(t, db, checkpoint.Cut{Cluster: "c"})
	logs(t, db, object(t, resource("", "pods"), "a", "u1", "5", ""))
	db = reopen(t, db, path)
	if !logs(t, db, object(t, resource("", "pods"), "a", "u2", "6", "")) {
		t.Fatal("an intent is not logged after a restart")
	}
	for range 2 {
		w, err := db.LoadWatch("w")
		must.Succeed(t, err)
		if len(w.Intents) != 2 || w.Intents[0].UID != "u1" || w.Intents[1].UID != "u2" {
			t.Errorf("intents %+v", w.Intents)
		}
		db = reopen(t, db, path)
	}
}

// TestLogOfAnotherFormat: another version may have written to the file since, so its journal is not
// read.
func TestLogOfAnotherFormat(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	write(t, db, checkpoint.Cut{Cluster: "c", Watches: []checkpoint.WatchCut{{ID: "w", Applied: "4"}}})
	logs(t, db, object(t, resource("", "pods"), "a", "u1", "5", ""))
	must.Succeed(t, db.Close())
	setFormat(t, path, 7, 1)
	db = open(t, path)
	if got := dump(t, db, []string{"w"}, nil); strings.Contains(got, "intent") {
		t.Errorf("the journal of another version is read:\n%s", got)
	}
	if logs(t, db, object(t, resource("", "pods"), "b", "u2", "6", "")) {
		t.Error("an intent is logged before the first cut")
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "6"}}})
	logs(t, db, object(t, resource("", "pods"), "b", "u2", "6", ""))
	if got := crashed(t, path); !strings.Contains(got, "intent ns/b u2") || strings.Contains(got, "u1") {
		t.Errorf("after the first cut:\n%s", got)
	}
}

// TestLogRefused: the error of an append is returned, and the leader of a fleet logs nothing. It
// takes over the intents that a router without a fleet has logged.
func TestLogRefused(t *testing.T) {
	path, fails := statePath(t), false
	broken := errors.New("broken")
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Around: func(_ string, transaction func() error) error {
		err := transaction()
		if fails {
			return errors.Join(err, broken)
		}
		return err
	}})
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	write(t, db, checkpoint.Cut{Cluster: "c"})
	o := object(t, resource("", "pods"), "a", "u1", "5", "")
	if !logs(t, db, o) {
		t.Fatal("an intent is not logged")
	}
	fails = true
	if ok, err := db.Log(map[string][]*event.Object{"w": {o}}); !ok || !errors.Is(err, broken) {
		t.Errorf("logged %t, %v", ok, err)
	}
	fails = false
	must.Succeed(t, db.Close())
	leader, err := checkpoint.Open(checkpoint.Config{Path: path, Shipped: func(checkpoint.Frame) {}, Term: 1})
	must.Succeed(t, err)
	defer leader.Close()
	write(t, leader, checkpoint.Cut{Cluster: "c"})
	if logs(t, leader, o) {
		t.Error("a leader logs an intent, which no standby gets")
	}
	if got := dump(t, leader, []string{"w"}, nil); !strings.Contains(got, "intent ns/a u1") {
		t.Errorf("the leader lacks the intent of the journal:\n%s", got)
	}
}

// TestLogAfterFailure: after a transaction that failed, whose outcome may be unknown, intents are
// committed until the next one succeeds.
func TestLogAfterFailure(t *testing.T) {
	path := statePath(t)
	db, err := checkpoint.Open(checkpoint.Config{Path: path, MaxSize: 1 << 20})
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	write(t, db, checkpoint.Cut{Cluster: "c"})
	o := object(t, resource("", "pods"), "a", "u1", "5", "")
	large := object(t, resource("", "pods"), "b", "u2", "6", randomText(4<<20, 1))
	err = db.Write(checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "6", Put: []*event.Object{large}}}})
	if !errors.Is(err, checkpoint.ErrFull) || logs(t, db, o) {
		t.Errorf("an intent is logged after %v", err)
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "5"}}})
	if !logs(t, db, o) || !strings.Contains(crashed(t, path), "intent ns/a u1") {
		t.Error("an intent is not logged after a transaction that succeeded")
	}
}

// TestLogDamaged: a damaged record is reported, and costs no others.
func TestLogDamaged(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	write(t, db, checkpoint.Cut{Cluster: "c"})
	for _, uid := range []string{"u1", "u2", "u3"} {
		logs(t, db, object(t, resource("", "pods"), "a", uid, "5", ""))
	}
	must.Succeed(t, db.Close())
	text, err := os.ReadFile(path + ".journal")
	must.Succeed(t, err)
	text[len(text)/2] ^= 1
	must.Succeed(t, os.WriteFile(path+".journal", text, 0o600))
	var log strings.Builder
	db, err = checkpoint.Open(checkpoint.Config{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	must.Succeed(t, err)
	defer db.Close()
	if got := dump(t, db, []string{"w"}, nil); strings.Count(got, "intent") != 2 || strings.Contains(got, "u2") {
		t.Errorf("of a damaged journal:\n%s", got)
	}
	if !strings.Contains(log.String(), "a part of the journal of the state file is damaged") || !strings.Contains(log.String(), "lost=1") {
		t.Errorf("the log has %s", &log)
	}
}
