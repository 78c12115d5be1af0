package engine

import "github.com/tetratelabs/wazero/experimental"

// allocated are the memories of an instance during its start. wazero frees them when it closes the
// instance, but it never closes an instance whose start failed. It implements
// [experimental.MemoryAllocator].
type allocated []experimental.LinearMemory

// Allocate allocates a memory.
func (a *allocated) Allocate(size, most uint64) experimental.LinearMemory {
	m := allocateMemory(size, most)
	*a = append(*a, m)
	return m
}

// free frees the memories after a failed start, when no code uses them.
func (a *allocated) free() {
	for _, m := range *a {
		m.Free()
	}
}

// touch writes to each page of new memory, which is zero. The first access to a page waits 2 to 9
// µs for the operating system. Tens of thousands of first accesses fit between two pauses of a
// guest, and Go's garbage collector would wait for all of them. In touch it waits for at most one,
// because the runtime can preempt a loop in Go.
func touch(added []byte) {
	const page = 4096 // the smallest page size
	for at := 0; at < len(added); at += page {
		added[at] = 0
	}
}

// heapMemory is the memory of a guest on systems without reserved addresses. It implements
// [experimental.LinearMemory].
type heapMemory struct{ bytes []byte }

// Reallocate returns the memory with a new size.
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

// Free frees the memory of a closed instance.
func (m *heapMemory) Free() { m.bytes = nil }
