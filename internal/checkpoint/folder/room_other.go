//go:build !linux && !darwin

package folder

// Room reports that the size of the disk is unknown.
func Room(string) (bytes int64, known bool) { return 0, false }
