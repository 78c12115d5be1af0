//go:build !linux

package statefile

import "os"

// syncData writes the content of a file to the disk.
func syncData(file *os.File) error { return file.Sync() }
