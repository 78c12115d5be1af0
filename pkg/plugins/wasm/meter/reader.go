package meter

import (
	"fmt"
	"unicode/utf8"
)

// reader reads a part of a module. The first fault is kept in err and puts the reader at its end, so that what is read next is
// nothing: loops ask ok.
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
	r.failWith(&MalformedError{Offset: offset, Reason: fmt.Sprintf(format, args...)})
}

func (r *reader) failWith(err error) {
	if r.err == nil {
		r.err = err
	}
	r.i = len(r.b)
}

// feature says that something of a proposal is used that is not enabled.
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

// bytes returns the next n bytes, not a copy.
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
	if r.i < len(r.b) && r.b[r.i] < 0x80 { // nearly all
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

// signed reads a signed LEB128 number of at most so many bits, 32, 33 or 64.
func (r *reader) signed(bits int) int64 {
	at, v := r.at(), int64(0)
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if rest := bits - shift; rest < 7 { // the bits beyond must repeat the sign
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

// end checks that everything was read.
func (r *reader) end(what string) {
	if r.ok() && r.left() > 0 {
		r.fail(r.at(), "%d bytes too many in %s", r.left(), what)
	}
}
