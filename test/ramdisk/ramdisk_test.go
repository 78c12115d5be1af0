package ramdisk

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type run func() int

func (r run) Run() int { return r() }

func TestWrap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/shm")
	}
	in, other := t.TempDir(), t.TempDir()
	for name, c := range map[string]struct {
		in    string
		bytes uint64
		used  bool
	}{
		"room":        {in, 1, true},
		"no room":     {in, math.MaxUint64, false},
		"no such one": {filepath.Join(in, "none"), 1, false},
	} {
		t.Setenv("TMPDIR", other)
		code := (&runner{run(func() int {
			folder := os.TempDir() //nolint:usetesting // the one that the runner sets
			if used := filepath.Dir(folder) == in; used != c.used {
				t.Errorf("%s: temporary folders are in %s", name, folder)
			}
			return 7
		}), c.in, c.bytes}).Run()
		if left, err := os.ReadDir(in); code != 7 || err != nil || len(left) > 0 {
			t.Errorf("%s: the exit code is %d, left are %v, %v", name, code, left, err)
		}
	}
}
