//go:build !linux

package child

import "syscall"

// attributes cannot tie the process to the life of this process.
func attributes() *syscall.SysProcAttr { return nil }
