// Package ramdisk puts the temporary folders of tests in memory: for tests that are not about a
// disk, which would wait for each of its writes.
package ramdisk

import (
	"fmt"
	"os"
)

// Runner is the interface of *testing.M.
type Runner interface{ Run() int }

// Wrap returns a runner whose temporary folders, those of t.TempDir and os.MkdirTemp, are in
// /dev/shm if that has so many free bytes, and else where they would be without it. They are
// removed after the tests.
func Wrap(m Runner, bytes uint64) Runner { return &runner{m, "/dev/shm", bytes} }

type runner struct {
	m     Runner
	in    string
	bytes uint64
}

// Run implements [Runner].
func (r *runner) Run() int {
	if free(r.in) < r.bytes {
		return r.m.Run()
	}
	dir, err := os.MkdirTemp(r.in, "deltarouter-test-")
	if err != nil {
		return r.m.Run()
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "ramdisk:", err)
		}
	}()
	if err := os.Setenv("TMPDIR", dir); err != nil {
		fmt.Fprintln(os.Stderr, "ramdisk:", err)
		return 1
	}
	return r.m.Run()
}
