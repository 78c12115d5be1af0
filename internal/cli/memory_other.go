//go:build !linux

package cli

// ProtectMemory does nothing here.
func ProtectMemory() error { return nil }
