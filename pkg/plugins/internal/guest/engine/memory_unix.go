//go:build unix

package engine

import (
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// allocateMemory reserves the addresses for the maximum size of a guest's memory, outside Go's
// heap. So growing needs no copy, and Go's garbage collector does not count it as heap. Reserved
// addresses use no memory.
func allocateMemory(_, most uint64) experimental.LinearMemory {
	all, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil { // the process may have too few addresses
		return &heapMemory{}
	}
	return &mappedMemory{all: all}
}

// mappedMemory implements [experimental.LinearMemory].
type mappedMemory struct {
	all  []byte
	size uint64 // accessible
}

// Reallocate makes the first size bytes accessible. nil: the limit is reached, and memory.grow
// fails.
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

// Free frees the memory of a closed instance.
func (m *mappedMemory) Free() {
	_ = syscall.Munmap(m.all) // fails only for unmapped memory
	m.all = nil
}
