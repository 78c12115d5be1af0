//go:build unix

package engine

import (
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// allocateMemory reserves the addresses for all that a guest's memory may become, outside Go's
// heap: growing takes no copy, and Go's garbage collector is not led to believe that there is a
// heap of that size. What is only reserved takes no memory.
func allocateMemory(_, most uint64) experimental.LinearMemory {
	all, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil { // the process may not have so many addresses
		return &heapMemory{}
	}
	return &mappedMemory{all: all}
}

// mappedMemory implements [experimental.LinearMemory].
type mappedMemory struct {
	all  []byte
	size uint64 // accessible
}

// Reallocate makes the first bytes accessible. nil: there is no more, and memory.grow fails.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.all)) {
		return nil
	}
	if size > 0 && syscall.Mprotect(m.all[:size], syscall.PROT_READ|syscall.PROT_WRITE) != nil {
		return nil
	}
	if size > m.size {
		touch(m.all[m.size:size])
		m.size = size
	}
	return m.all[:size:size]
}

// Free is called when the instance is closed.
func (m *mappedMemory) Free() {
	_ = syscall.Munmap(m.all) // fails only if it is not mapped
	m.all = nil
}
