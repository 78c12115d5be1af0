//go:build unix

package child

import (
	"os"
	"syscall"
)

// ownedByUs reports whether a file belongs to the router's user.
func ownedByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
