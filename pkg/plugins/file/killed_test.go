package file_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// killedEnv has the folder for the process of TestKilledWhileRotating, and its first id.
const killedEnv = "DELTAROUTER_TEST_KILLED"

// TestKilledWhileRotating: a process that is killed at any moment of a rotation loses no line that
// it has acknowledged, and leaves no partial line. Duplicates are events that were in flight at the
// kill.
func TestKilledWhileRotating(t *testing.T) {
	// Guarantee: rotation-crash
	config := func(dir string) string {
		return fmt.Sprintf("{path: %q, maxSize: 4Ki, maxFiles: 10000}", filepath.Join(dir, "events.jsonl"))
	}
	if dir, from, ok := strings.Cut(os.Getenv(killedEnv), "="); ok {
		next, err := strconv.Atoi(from)
		must.Succeed(t, err)
		s := open(t, config(dir))
		for ; ; next++ {
			write(t, s, numbered(next, 1))
			fmt.Println(next)
		}
	}
	dir := t.TempDir()
	unclear := make(map[int]bool) // events that may be duplicated
	next := 0
	for range 12 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWhileRotating$", "-test.count=1")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s=%d", killedEnv, dir, next))
		out, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		enough := next + 50 + rand.IntN(150)
		for said := bufio.NewScanner(out); said.Scan(); {
			n, err := strconv.Atoi(said.Text())
			if err != nil || n != next {
				t.Fatalf("it says %q after %d", said.Text(), next-1)
			}
			if next++; next == enough {
				must.Succeed(t, cmd.Process.Kill())
			} // the test reads all acknowledgements of the killed process
		}
		_ = cmd.Wait()
		if next < enough {
			t.Fatalf("it ended by itself after %d", next)
		}
		unclear[next] = true
	}
	write(t, open(t, config(dir)), numbered(next, 1))
	had := make(map[int]int)
	files, err := os.ReadDir(dir)
	must.Succeed(t, err)
	for _, f := range files {
		for _, id := range ids(t, filepath.Join(dir, f.Name())) {
			had[id]++
		}
	}
	for id := range next + 1 {
		if had[id] == 0 || had[id] > 1 && !unclear[id] || had[id] > 2 {
			t.Errorf("event %d is there %d times", id, had[id])
		}
	}
	if len(had) != next+1 || len(files) < 20 {
		t.Errorf("there are %d events of %d in %d files", len(had), next+1, len(files))
	}
}
