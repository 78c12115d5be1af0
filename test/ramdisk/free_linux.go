package ramdisk

import "syscall"

// free returns the free bytes of the file system of a folder; 0 if there is no such folder.
func free(folder string) uint64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // a size is not negative
}
