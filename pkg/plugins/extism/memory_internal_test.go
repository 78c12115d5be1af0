package extism

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestMemory compares the memory with a map of blocks: blocks keep their content until they are
// freed, do not overlap, and stay within the bound.
func TestMemory(t *testing.T) {
	// Guarantee: guest-memory
	rapid.Check(t, func(t *rapid.T) {
		m := memory{most: rapid.Uint64Range(200, 4000).Draw(t, "most")}
		m.reset()
		blocks := map[uint64][]byte{}
		at := func() uint64 {
			all := []uint64{0, 1, firstBlock, m.top}
			for at := range blocks {
				all = append(all, at)
			}
			return rapid.SampledFrom(all).Draw(t, "at")
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				content := rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "content")
				at, err := m.put(content)
				if err != nil && uint64(len(content))+100 < m.most-m.top || (at == 0) != (err != nil || len(content) == 0) {
					t.Fatalf("put %d bytes of %d: %d, %v", len(content), m.most, at, err)
				}
				if at != 0 {
					blocks[at] = content
				}
			},
			"free": func(*rapid.T) {
				at := at()
				m.free(at)
				delete(blocks, at)
			},
			"reset": func(*rapid.T) {
				m.reset()
				clear(blocks)
			},
			"forge": func(t *rapid.T) { // of a block that is forgotten
				at := at()
				if _, ok := blocks[at]; !ok {
					return
				}
				if header, ok := m.blocks(at-headerSize, headerSize); ok {
					copy(header[:4], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "header"))
					copy(header[4:8], []byte{0xff, 0xff, 0xff, 0xff}) // its size is beyond its room: no block
				}
				delete(blocks, at)
				m.free(at)
			},
			"": func(t *rapid.T) {
				if uint64(len(m.bytes)) > m.most || m.top > m.most && m.top != firstBlock {
					t.Fatalf("%d bytes, the last block ends at %d, at most %d", len(m.bytes), m.top, m.most)
				}
				for at, want := range blocks {
					if got, ok := m.read(at, m.length(at)); !ok || !bytes.Equal(got, want) {
						t.Fatalf("the block at %d is %x, want %x", at, got, want)
					}
				}
			},
		})
	})
}

// TestMemoryReuse shows that freed blocks are used again when the memory is full.
func TestMemoryReuse(t *testing.T) {
	m := memory{most: 1 << 16}
	m.reset()
	for i := range 10_000 {
		at, err := m.alloc(5000)
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		m.free(at)
	}
}
