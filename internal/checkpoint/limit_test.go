//go:build linux

package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestWriteErrors writes under a kernel limit on the file size, which acts like a full disk: in a
// process of its own, because the limit applies to a whole process.
func TestWriteErrors(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHECKPOINT_LIMITED="+statePath(t))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// noRoomToShrink: the file stays as it is, and is used.
func noRoomToShrink(t *testing.T, whole, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	copyFile(t, whole, path)
	before := sizeOf(t, path)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHECKPOINT_LIMITED="+path, "CHECKPOINT_LIMIT=1000000")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
	if now := sizeOf(t, path); now != before {
		t.Errorf("it has %d bytes, before %d", now, before)
	}
	if others, err := filepath.Glob(path + ".*"); err != nil || len(others) != 2 { // the lock and the journal
		t.Errorf("%q is there (%v)", others, err)
	}
	db := open(t, path)
	if got := dump(t, db, []string{"w"}, []string{"r"}); got != want || db.Quarantined() != "" || db.Size() >= before {
		t.Errorf("with room again: %d bytes, before %d", db.Size(), before)
	}
}

// opened opens a file that cannot be rewritten for lack of room.
func opened(path, limit string) error {
	signal.Ignore(syscall.SIGXFSZ)
	n, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: 1 << 40}); err != nil {
		return err
	}
	log, said := logger()
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Log: log})
	if err != nil {
		return err
	}
	if text := said.String(); !strings.Contains(text, "is used as it is") || !strings.Contains(text, "no room") || strings.Count(text, "\n") != 1 {
		return fmt.Errorf("the log says %s", text)
	}
	if w, err := db.LoadWatch("w"); err != nil || len(w.Objects) != 51 {
		return fmt.Errorf("%+v, %w", w, err)
	}
	return db.Close()
}

// limited is the main function of that process.
func limited(path string) int {
	do := limitedWrites
	if limit := os.Getenv("CHECKPOINT_LIMIT"); limit != "" {
		do = func(path string) error { return opened(path, limit) }
	}
	if err := do(path); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

func limitedWrites(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	if err != nil {
		return err
	}
	defer db.Close()
	put := func(name string, size int) error {
		o, err := event.ParseObject(resource("", "pods"), fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q},"body":%q}`, name, name, randomText(size, 1)))
		if err != nil {
			return err
		}
		return db.Write(checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: name, Put: []*event.Object{o}}}})
	}
	objects := func() string {
		w, err := db.LoadWatch("w")
		if err != nil || w == nil {
			return fmt.Sprint(w, err)
		}
		return fmt.Sprint(w.Applied, len(w.Objects))
	}
	if err := put("a", 100); err != nil {
		return err
	}
	limit := func(n uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: 1 << 40})
	}
	// no growth, truncated writes, no writes at all
	for _, n := range []uint64{uint64(db.Size()), 8192, 100} {
		if err := limit(n); err != nil {
			return err
		}
		for range 3 {
			if err := put("b", 3_000_000); !errors.Is(err, checkpoint.ErrFull) {
				return fmt.Errorf("limit %d: %w", n, err)
			}
			if got := objects(); !strings.HasPrefix(got, "a1") {
				return fmt.Errorf("limit %d: after a write that failed there is %s", n, got)
			}
		}
		if err := limit(1 << 40); err != nil {
			return err
		}
		if err := put("a", 50); err != nil {
			return fmt.Errorf("after limit %d: %w", n, err)
		}
	}
	if err := put("b", 3_000_000); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if db, err = checkpoint.Open(checkpoint.Config{Path: path}); err != nil {
		return err
	}
	if got := objects(); got != "b2" || db.Quarantined() != "" {
		return fmt.Errorf("at the end there is %s %s", got, db.Quarantined())
	}
	return db.Close()
}
