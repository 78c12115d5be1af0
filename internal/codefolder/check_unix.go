//go:build unix

package codefolder

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkMode returns the reason why another user could change a folder. Root can change everything.
// A group with the number of the user, or of root, has no other members: distributions give each
// user such a group, and Kubernetes makes volumes writable for it (fsGroup). above: the folder is
// above the one in question, which nobody else can replace there if the sticky bit is set, as of
// /tmp.
func checkMode(path string, info fs.FileInfo, above bool) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is unknown", path)
	}
	const group, others = 0o020, 0o002
	self := uint32(os.Geteuid()) //nolint:gosec // never negative here
	switch mode := info.Mode(); {
	case stat.Uid != self && stat.Uid != 0:
		return fmt.Errorf("%s belongs to the user %d, and the router runs as %d", path, stat.Uid, self)
	case above && mode&fs.ModeSticky != 0:
		return nil
	case mode&others != 0:
		return fmt.Errorf("every user of this machine may write to %s: run chmod o-w %s", path, path)
	case mode&group != 0 && stat.Gid != self && stat.Gid != 0:
		return fmt.Errorf("the group %d may write to %s: run chmod g-w %s", stat.Gid, path, path)
	}
	return nil
}
