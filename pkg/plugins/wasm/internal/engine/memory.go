package engine

import "github.com/tetratelabs/wazero/experimental"

// allocated are the memories of an instance that is being made. wazero frees them when it closes
// the instance, but one whose start fails is never closed. It implements
// [experimental.MemoryAllocator].
type allocated []experimental.LinearMemory

// Allocate makes a memory.
func (a *allocated) Allocate(size, most uint64) experimental.LinearMemory {
	m := allocateMemory(size, most)
	*a = append(*a, m)
	return m
}

// free is called when there is no instance. Nothing runs in it then.
func (a *allocated) free() {
	for _, m := range *a {
		m.Free()
	}
}

// touch writes to each page of new memory, which is zero. The first access to a page waits for the
// operating system, for 2 to 9 µs: tens of thousands of them fit between two pauses of a guest, and
// Go's garbage collector would wait for all of them. Here it waits for one at most, since the
// runtime may preempt a loop in Go.
func touch(added []byte) {
	const page = 4096 // the smallest one
	for at := 0; at < len(added); at += page {
		added[at] = 0
	}
}

// heapMemory is a guest's memory where addresses cannot be reserved. It implements
// [experimental.LinearMemory].
type heapMemory struct{ bytes []byte }

// Reallocate returns the memory with another size.
func (m *heapMemory) Reallocate(size uint64) []byte {
	before := len(m.bytes)
	if size > uint64(cap(m.bytes)) {
		larger := make([]byte, size, size+size/4)
		copy(larger, m.bytes)
		m.bytes = larger
	}
	m.bytes = m.bytes[:size]
	touch(m.bytes[before:])
	return m.bytes
}

// Free is called when the instance is closed.
func (m *heapMemory) Free() { m.bytes = nil }
