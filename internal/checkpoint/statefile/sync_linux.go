package statefile

import (
	"os"
	"syscall"
)

// syncData writes the content of a file to the disk, and of its other data only the size.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
