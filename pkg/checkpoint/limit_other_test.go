//go:build !linux

package checkpoint_test

func limited(string) int { return 0 }
