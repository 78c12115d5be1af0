//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package file

import "os"

// openOwn opens the file of the sink.
func openOwn(path string, flags int) (*os.File, error) { return os.OpenFile(path, flags, mode) }

// lock does nothing on this platform.
func lock(*os.File) error { return nil }
