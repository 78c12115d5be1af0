package plugincmd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// sections are the parts of a module that describe it.
type sections struct {
	imports, exports  []string
	memory, maxMemory uint64 // pages; maxMemory 0: unlimited
	custom            []custom
}

// custom is a custom section.
type custom struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

var errModule = errors.New("it is no WebAssembly module, or it is damaged")

// The ids of sections.
const (
	customSection = 0
	importSection = 2
	memorySection = 5
	exportSection = 7
)

// sectionsOf reads the sections of a module. It does not check the code.
func sectionsOf(module []byte) (*sections, error) {
	switch {
	case strings.HasPrefix(string(module), "\x00asm\x0d\x00\x01\x00"):
		return nil, errors.New("it is a component (WASI 0.2 or later), which the router does not run: build it for WASI preview 1, which toolchains call wasm32-wasip1")
	case !strings.HasPrefix(string(module), "\x00asm\x01\x00\x00\x00"):
		return nil, errModule
	}
	found := &sections{imports: []string{}, exports: []string{}, custom: []custom{}}
	r := &cursor{b: module[8:]}
	for len(r.b) > 0 && !r.bad {
		id := r.byte()
		s := &cursor{b: r.bytes(r.uint())}
		switch id {
		case customSection:
			name := s.name()
			found.custom = append(found.custom, custom{name, len(s.b)})
		case importSection:
			found.readImports(s)
		case memorySection:
			if s.uint() > 0 {
				found.memory, found.maxMemory = s.limits()
			}
		case exportSection:
			for range s.uint() {
				found.exports = append(found.exports, s.name())
				s.byte()
				s.uint()
				if s.bad {
					break
				}
			}
		}
		r.bad = r.bad || s.bad
	}
	if r.bad {
		return nil, errModule
	}
	return found, nil
}

func (f *sections) readImports(s *cursor) {
	for range s.uint() {
		module, name := s.name(), s.name()
		f.imports = append(f.imports, fmt.Sprintf("%s.%s", module, name))
		switch s.byte() {
		case 0: // a function
			s.uint()
		case 1: // a table
			s.byte()
			s.limits()
		case 2:
			f.memory, f.maxMemory = s.limits()
		case 3: // a global
			s.byte()
			s.byte()
		default:
			s.bad = true
		}
		if s.bad {
			return
		}
	}
}

// cursor reads the encoding of modules. After a fault bad is true, and all values are zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	part := c.b[:n]
	c.b = c.b[n:]
	return part
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// uint reads a number of 32 bits.
func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || v >= 1<<32 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) name() string { return string(c.bytes(c.uint())) }

// limits reads the minimum and the maximum of a memory or table; 0: there is no maximum.
func (c *cursor) limits() (low, high uint64) {
	bounded := c.byte()&1 == 1
	if low = c.uint(); bounded {
		high = c.uint()
	}
	return low, high
}
