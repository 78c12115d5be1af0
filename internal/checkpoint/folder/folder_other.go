//go:build !unix

package folder

// Check leaves the rights of the folder to the system.
func Check(string) error { return nil }
