package extism

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// memory contains the blocks that a guest shares with the host. The guest knows their addresses,
// and reads and writes them by host functions. Like Extism's kernel, it uses freed blocks again
// only when it is full, because guests read blocks that they have freed.
type memory struct {
	bytes []byte
	most  uint64 // the maximum length of bytes
	top   uint64 // the end of the last block
	freed [33][]uint32
}

// A block begins with a header: its room, its size, and its state. A guest can overwrite headers,
// so nothing in them is trusted.
const (
	headerSize = 16
	firstBlock = 64 // addresses below are invalid
	alignment  = 16

	stateUsed  = 0x64657375
	stateFreed = 0x65657266
)

const (
	leastMemory = 64 << 10
	// keptMemory is the length up to which the memory is kept for the next delta.
	keptMemory = 1 << 20
	// chunkSize is the size of copies. The collector of Go waits for a copy, but not for a loop.
	chunkSize = 64 << 10
	// fits is the number of freed blocks that are compared with a size.
	fits = 16
)

// errFull is the error of a guest whose blocks exceed the memory.
var errFull = errors.New("its blocks need more than a quarter of its memory: raise limits.memory, or free blocks")

// reset frees all blocks. The next delta finds only zeros.
func (m *memory) reset() {
	if len(m.bytes) > keptMemory {
		m.bytes = nil
	}
	for chunk := range slices.Chunk(m.bytes[:min(m.top, uint64(len(m.bytes)))], chunkSize) {
		clear(chunk)
	}
	m.top = firstBlock
	m.freed = [33][]uint32{}
}

// alloc returns the address of a new block, or 0 if its size is 0.
func (m *memory) alloc(size uint64) (uint64, error) {
	switch {
	case size == 0:
		return 0, nil
	case size > m.most:
		return 0, errFull
	}
	room := (size + alignment - 1) &^ (alignment - 1)
	at := m.top + headerSize
	if at+room <= m.most {
		m.grow(at + room)
		m.top = at + room
	} else if at, room = m.reuse(room); at == 0 {
		return 0, errFull
	}
	m.header(at, room, size, stateUsed)
	return at, nil
}

// grow makes at least size bytes accessible.
func (m *memory) grow(size uint64) {
	if size <= uint64(len(m.bytes)) {
		return
	}
	larger := make([]byte, min(max(2*uint64(len(m.bytes)), size, leastMemory), m.most))
	at := 0
	for chunk := range slices.Chunk(m.bytes, chunkSize) {
		at += copy(larger[at:], chunk)
	}
	m.bytes = larger
}

// reuse returns a freed block with enough room, or 0.
func (m *memory) reuse(room uint64) (at, has uint64) {
	// All blocks of a class have room for all smaller classes, but not for all of their own.
	own := bits.Len64(room) - 1
	for i := len(m.freed[own]) - 1; i >= max(0, len(m.freed[own])-fits); i-- {
		if at, has = m.take(own, i, room); at != 0 {
			return at, has
		}
	}
	for class := own + 1; class < len(m.freed); class++ {
		for len(m.freed[class]) > 0 {
			if at, has = m.take(class, len(m.freed[class])-1, room); at != 0 {
				return at, has
			}
			m.freed[class] = m.freed[class][:len(m.freed[class])-1] // the guest has overwritten its header
		}
	}
	return 0, 0
}

// take removes the i-th freed block of a class if it has enough room, or returns 0.
func (m *memory) take(class, i int, room uint64) (at, has uint64) {
	all := m.freed[class]
	at = uint64(all[i])
	has, _, state := m.describe(at)
	if state != stateFreed || has < room {
		return 0, 0
	}
	m.freed[class] = slices.Delete(all, i, i+1)
	return at, has
}

// free frees a block. Any other address has no effect.
func (m *memory) free(at uint64) {
	room, size, state := m.describe(at)
	if state != stateUsed {
		return
	}
	m.header(at, room, size, stateFreed)
	class := bits.Len64(room) - 1
	m.freed[class] = append(m.freed[class], uint32(at))
}

// length returns the size of the block that begins at an address, or 0.
func (m *memory) length(at uint64) uint64 {
	if _, size, state := m.describe(at); state == stateUsed {
		return size
	}
	return 0
}

// header writes the header of a block.
func (m *memory) header(at, room, size uint64, state uint32) {
	h := m.bytes[at-headerSize : at]
	binary.LittleEndian.PutUint32(h, uint32(room))
	binary.LittleEndian.PutUint32(h[4:], uint32(size))
	binary.LittleEndian.PutUint32(h[8:], state)
}

// describe reads the header of a block, whose room is within the memory. Without a block state is
// 0.
func (m *memory) describe(at uint64) (room, size uint64, state uint32) {
	if at < firstBlock+headerSize || at > m.top || at%alignment != 0 {
		return 0, 0, 0
	}
	h := m.bytes[at-headerSize : at]
	room, size = uint64(binary.LittleEndian.Uint32(h)), uint64(binary.LittleEndian.Uint32(h[4:]))
	if room == 0 || room%alignment != 0 || size > room || room > m.top-at {
		return 0, 0, 0
	}
	return room, size, binary.LittleEndian.Uint32(h[8:])
}

// read returns a view of size bytes.
func (m *memory) read(at, size uint64) ([]byte, bool) {
	length := uint64(len(m.bytes))
	if at < firstBlock || size > length || at > length-size {
		return nil, false
	}
	return m.bytes[at : at+size], true
}

// blocks returns a view of size bytes between the first and the last block, which a guest may
// write.
func (m *memory) blocks(at, size uint64) ([]byte, bool) {
	if at < firstBlock || size > m.top || at > m.top-size {
		return nil, false
	}
	return m.bytes[at : at+size], true
}

// put returns the address of a new block with content, or 0 if it is empty.
func (m *memory) put(content []byte) (uint64, error) {
	at, err := m.alloc(uint64(len(content)))
	if err == nil && at != 0 {
		copy(m.bytes[at:], content)
	}
	return at, err
}
