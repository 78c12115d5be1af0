package cli

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestProtectMemory: other processes of the router's user cannot read its memory, and a crash
// writes none of it to the disk.
func TestProtectMemory(t *testing.T) {
	// Guarantee: memory-private
	must.Succeed(t, ProtectMemory())
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		t.Errorf("the process is dumpable: %d, %v", dumpable, err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Cur != 0 || limit.Max != 0 {
		t.Errorf("core dumps are limited to %+v, %v", limit, err)
	}
}
