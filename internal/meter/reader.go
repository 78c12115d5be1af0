package meter

import (
	"fmt"
	"unicode/utf8"
)

// reader reads a part of a module. It keeps the first fault in err and then moves to its end, so
// that further reads return nothing. Loops must check ok.
type reader struct {
	b     []byte
	i     int
	start int // offset of b[0] in the module
	err   error
}

func (r *reader) ok() bool  { return r.err == nil }
func (r *reader) left() int { return len(r.b) - r.i }
func (r *reader) at() int   { return r.start + r.i }

// fail keeps the first fault.
func (r *reader) fail(offset int, format string, args ...any) {
	r.failWith(&malformedError{Offset: offset, Reason: fmt.Sprintf(format, args...)})
}

func (r *reader) failWith(err error) {
	if r.err == nil {
		r.err = err
	}
	r.i = len(r.b)
}

// feature reports the use of a proposal that is not enabled.
func (r *reader) feature(offset int, name string) {
	r.failWith(&FeatureError{Feature: name, Function: -1, Offset: offset})
}

func (r *reader) short() { r.fail(r.at(), "unexpected end") }

func (r *reader) byte() byte {
	if r.i >= len(r.b) {
		r.short()
		return 0
	}
	c := r.b[r.i]
	r.i++
	return c
}

// bytes returns the next n bytes without a copy.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > r.left() {
		r.short()
		return nil
	}
	b := r.b[r.i : r.i+n : r.i+n]
	r.i += n
	return b
}

// u32 reads an unsigned LEB128 number of at most five bytes.
func (r *reader) u32() uint32 {
	if r.i < len(r.b) && r.b[r.i] < 0x80 { // the usual case
		r.i++
		return uint32(r.b[r.i-1])
	}
	at, v := r.at(), uint32(0)
	for shift := 0; shift <= 28; shift += 7 {
		c := r.byte()
		if shift == 28 && c > 0x0f {
			r.fail(at, "number is longer than 32 bits")
			return 0
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			break
		}
	}
	return v
}

// signed reads a signed LEB128 number of at most 32, 33 or 64 bits.
func (r *reader) signed(bits int) int64 {
	at, v := r.at(), int64(0)
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if rest := bits - shift; rest < 7 { // excess bits must repeat the sign
			high := c >> (rest - 1)
			if high != 0 && high != 0x7f>>(rest-1) {
				r.fail(at, "number is longer than %d bits", bits)
				return 0
			}
		}
		v |= int64(c&0x7f) << shift
		if c < 0x80 {
			if used := shift + 7; used < 64 && c&0x40 != 0 {
				v |= -1 << used
			}
			return v
		}
	}
}

// count reads the length of a vector whose items take at least one byte each.
func (r *reader) count(limit uint32, what string) int {
	at := r.at()
	n := r.u32()
	switch {
	case uint64(n) > uint64(r.left()):
		r.fail(at, "%d %s do not fit into what is left", n, what)
		return 0
	case n > limit:
		r.fail(at, "%d %s, more than the limit of %d", n, what, limit)
		return 0
	}
	return int(n)
}

// index reads an index and checks it.
func (r *reader) index(below int, what string) int {
	at := r.at()
	x := r.u32()
	if uint64(x) >= uint64(below) {
		r.fail(at, "%s %d does not exist: there are %d", what, x, below)
		return 0
	}
	return int(x)
}

// name reads a string.
func (r *reader) name() string {
	at := r.at()
	b := r.bytes(int(r.u32()))
	if !utf8.Valid(b) {
		r.fail(at, "name is not UTF-8")
	}
	return string(b)
}

// sub returns a reader for the next n bytes.
func (r *reader) sub(n int) reader {
	start := r.at()
	return reader{b: r.bytes(n), start: start}
}

// end reports a fault if bytes are left.
func (r *reader) end(what string) {
	if r.ok() && r.left() > 0 {
		r.fail(r.at(), "%d bytes too many in %s", r.left(), what)
	}
}

// featureOfType returns the proposal of a type beyond WebAssembly 2.0, or "".
func featureOfType(c byte) string {
	switch {
	case c == 0x63 || c == 0x64:
		return "function-references"
	case c == 0x69 || c == 0x74:
		return "exception-handling"
	case c == 0x68 || c == 0x75:
		return "stack-switching"
	case c >= 0x6a && c <= 0x73, c == 0x77 || c == 0x78, c >= 0x4e && c <= 0x50, c == 0x5e || c == 0x5f:
		return "gc"
	}
	return ""
}

func badType(r *reader, c byte) {
	if name := featureOfType(c); name != "" && r.ok() {
		r.feature(r.at()-1, name)
		return
	}
	r.fail(r.at()-1, "unknown type %#x", c)
}

func refType(r *reader) {
	if c := r.byte(); c != 0x70 && c != 0x6f {
		badType(r, c)
	}
}

func valueType(r *reader) byte {
	c := r.byte()
	if (c < 0x7b || c > 0x7f) && c != 0x70 && c != 0x6f {
		badType(r, c)
	}
	return c
}

func sizeOf(valueType byte) int {
	if valueType == typeV128 {
		return 16
	}
	return 8
}

func mutability(r *reader) {
	if c := r.byte(); c > 1 {
		if c&2 != 0 {
			r.feature(r.at()-1, "shared-everything-threads")
		}
		r.fail(r.at()-1, "unknown mutability %#x", c)
	}
}

// types reads value types and adds the sizes of their values to size.
func types(s *reader, size *int) []byte {
	n := s.count(1000, "parameters or results")
	from := s.i
	for range n {
		*size += sizeOf(valueType(s))
	}
	return s.b[from:s.i]
}

// limits reads a minimum and a maximum; -1: no maximum.
func limits(s *reader) (least, most int64) {
	at := s.at()
	switch flags := s.byte(); {
	case flags > 15:
		s.fail(at, "unknown limits %#x", flags)
	case flags&2 != 0:
		s.feature(at, "threads")
	case flags&4 != 0:
		s.feature(at, "memory64")
	case flags&8 != 0:
		s.feature(at, "custom-page-sizes")
	case flags&1 == 0:
		return int64(s.u32()), -1
	}
	least = int64(s.u32())
	return least, int64(s.u32())
}
