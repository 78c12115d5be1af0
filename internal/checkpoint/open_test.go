package checkpoint_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestLocked(t *testing.T) {
	path := statePath(t)
	open(t, path).Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHECKPOINT_HOLD="+path)
	in, err := cmd.StdinPipe()
	must.Succeed(t, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatal(line, err)
	}
	before, err := os.ReadFile(path)
	must.Succeed(t, err)
	_, err = checkpoint.Open(checkpoint.Config{Path: path})
	var locked *checkpoint.LockedError
	host, _ := os.Hostname()
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || locked.Host != host || !strings.Contains(err.Error(), "state.dir") {
		t.Errorf("error %v, want process %d on %s", err, cmd.Process.Pid, host)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Error("the file of another router was touched", err)
	}
	// The lock ends with its holder, in any way.
	must.Succeed(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	in.Close()
	open(t, path)
}

// A program that uses the database without our lock file is noticed too.
func TestLockedByBolt(t *testing.T) {
	path := statePath(t)
	open(t, path).Close()
	other, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	defer other.Close()
	var locked *checkpoint.LockedError
	if _, err := checkpoint.Open(checkpoint.Config{Path: path}); !errors.As(err, &locked) || locked.PID != 0 {
		t.Error(err)
	}
}

// setFormat changes the format number of a file, as another version would.
func setFormat(t *testing.T, path string, format, reader uint16) {
	t.Helper()
	value := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, format), reader)
	value = binary.BigEndian.AppendUint32(value, crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)))
	db, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), value) })
	must.Succeed(t, err)
}

func TestNewerFormat(t *testing.T) {
	// Guarantee: downgrade
	path := statePath(t)
	db := open(t, path)
	write(t, db, checkpoint.Cut{Cluster: "c"})
	db.Close()
	setFormat(t, path, 9, 9)
	must.Succeed(t, os.WriteFile(path+".format-9", nil, 0o600)) // no copy to go back to
	before, err := os.ReadFile(path)
	must.Succeed(t, err)
	for range 2 {
		_, err := checkpoint.Open(checkpoint.Config{Path: path})
		var newer *checkpoint.NewerError
		if !errors.As(err, &newer) || newer.Format != 9 || !strings.Contains(err.Error(), "format 9") ||
			!strings.Contains(err.Error(), "formats 1 to 8: run the newer version, restore a backup") {
			t.Error(err)
		}
	}
	must.Succeed(t, os.WriteFile(path+".format-3", nil, 0o600))
	_, err = checkpoint.Open(checkpoint.Config{Path: path})
	must.Fail(t, err, "restore "+path+".format-3, the copy from before the upgrade")
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Error("the file of a newer version was touched", err)
	}
	if others, _ := filepath.Glob(path + ".corrupt*"); len(others) > 0 {
		t.Error("it was moved away")
	}
}

// After a rollback the state of a newer version is read, if that version allows it; and the newer
// version can see the rollback.
func TestRollback(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	write(t, db, checkpoint.Cut{Cluster: "c"})
	db.Close()
	setFormat(t, path, checkpoint.Format+1, 1)
	db = open(t, path)
	if db.Cluster() != "c" || db.Quarantined() != "" {
		t.Error(db.Cluster(), db.Quarantined())
	}
	db.Close()
	bolt, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	defer bolt.Close()
	err = bolt.View(func(tx *bbolt.Tx) error {
		if format := binary.BigEndian.Uint16(tx.Bucket([]byte("meta")).Get([]byte("format"))); format != checkpoint.Format {
			t.Errorf("the file has format %d", format)
		}
		return nil
	})
	must.Succeed(t, err)
}

var update = flag.Bool("update", false, "write testdata anew; only for a new format")

// The file of each format that was ever released stays readable.
func TestFormat1(t *testing.T) {
	const golden = "testdata/format1.db"
	o := object(t, resource("", "pods"), "a", "u", "1", strings.Repeat("body ", 50))
	path := filepath.Join(t.TempDir(), "state.db")
	if *update {
		db := open(t, path)
		write(t, db, checkpoint.Cut{
			Cluster: "c", Watches: []checkpoint.WatchCut{{ID: "w", Applied: "5", Relisting: true, Put: []*event.Object{o}}},
			Routes: []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 3, Closed: []string{"out"}, Attempts: 2, Delta: &event.Delta{Source: "s", Op: event.Updated, Old: o, New: o, Seen: seen}}}}},
		})
		must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": {intent("b", "v")}}))
		db.Close()
		copyFile(t, path, golden)
	}
	copyFile(t, golden, path)
	db := open(t, path)
	want := "cluster c\nwatch w fed 5 relisting true\n  " + string(o.JSON()) + " bare false\n  intent ns/b v\n" +
		describe("r", checkpoint.Pending{ID: 3, Closed: []string{"out"}, Attempts: 2, Delta: &event.Delta{Source: "s", Op: event.Updated, Old: o, New: o, Seen: seen}})
	if got := dump(t, db, []string{"w"}, []string{"r"}); got != want || db.Quarantined() != "" {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// An obstacle to opening the file that is no damage is an error, and the file is not moved away.
func TestCannotOpen(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	must.Succeed(t, os.MkdirAll(filepath.Join(folder, "folder.db", "x"), 0o700))
	paths := map[string]string{"a folder that is a file": filepath.Join(file, "state.db"), "a file that is a folder": filepath.Join(folder, "folder.db")}
	if os.Geteuid() != 0 {
		sealed := filepath.Join(folder, "sealed")
		must.Succeed(t, os.Mkdir(sealed, 0o500))
		paths["a folder that is read-only"] = filepath.Join(sealed, "state.db")
	}
	for name, path := range paths {
		db, err := checkpoint.Open(checkpoint.Config{Path: path})
		if err == nil {
			t.Errorf("%s: opened, moved away %q", name, db.Quarantined())
			db.Close()
		}
	}
}

// A write that would make the file too large fails without an effect, and other writes still
// succeed.
func TestMaxSize(t *testing.T) {
	path := statePath(t)
	db, err := checkpoint.Open(checkpoint.Config{Path: path, MaxSize: 1 << 20})
	must.Succeed(t, err)
	defer db.Close()
	pods := resource("", "pods")
	var cut checkpoint.WatchCut
	cut.ID = "w"
	for i := range 2000 {
		name := "n" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + strings.Repeat("y", i/50)
		cut.Put = append(cut.Put, object(t, pods, name, name, "1", strings.Repeat(name, 5)+randomText(1000, uint64(i))))
	}
	for range 3 {
		if err := db.Write(checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}}); !errors.Is(err, checkpoint.ErrFull) || !strings.Contains(err.Error(), "state.maxSize") {
			t.Fatal(err)
		}
		if w, err := db.LoadWatch("w"); err != nil || w != nil && len(w.Objects) > 10 {
			t.Fatal("a part of it was written", err)
		}
		write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Put: cut.Put[:10]}}})
	}
	if db.Size() > 1<<20 {
		t.Error("the file has", db.Size())
	}
	db.Close()
	db = open(t, path) // without a limit
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
}

// A file that is removed or replaced while it is in use receives no more writes, because they would
// be lost after a restart.
func TestRemoved(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	must.Succeed(t, os.Rename(path, path+".away"))
	must.Fail(t, db.Write(checkpoint.Cut{Cluster: "c"}), "removed")
	must.Succeed(t, os.Rename(path+".away", path))
	write(t, db, checkpoint.Cut{Cluster: "c"})
}
