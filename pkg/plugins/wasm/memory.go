package wasm

// heapMemory is a guest's memory where addresses cannot be reserved. It implements [experimental.LinearMemory].
type heapMemory struct{ bytes []byte }

// Reallocate returns the memory with another size.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if size > uint64(cap(m.bytes)) {
		larger := make([]byte, size, size+size/4)
		copy(larger, m.bytes)
		m.bytes = larger
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

// Free is called when the instance is closed.
func (m *heapMemory) Free() { m.bytes = nil }
