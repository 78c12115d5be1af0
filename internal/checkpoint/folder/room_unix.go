//go:build linux || darwin

package folder

import "syscall"

// Room returns the number of bytes that this user may still write to the disk of a folder; false:
// the system does not tell.
func Room(dir string) (bytes int64, known bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true //nolint:gosec,unconvert // other types elsewhere
}
