//go:build !unix

package folder

// Check accepts every folder: the system guards the rights.
func Check(string) error { return nil }
