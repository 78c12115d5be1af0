package rawjson

import (
	"math/bits"
	"unsafe"
)

// masksOf has a bit for each of the 64 bytes from p on, the lowest for the first: where the quotes,
// the backslashes, and the opening and closing brackets and braces are.
//
//go:noescape
func masksOf(p *byte) (quotes, slashes, opening, closing uint64)

// specialsOf sets the marks of windowSize bytes from p on: a bit for each byte that is a quote, a
// backslash or a control character. wide reports whether a byte is not ASCII.
//
//go:noescape
func specialsOf(p *byte, marks *[windowSize / blockSize]uint64) (wide bool)

// look makes the next bytes from i on the window of the scanner. It returns false if there are too
// few.
func (s *scanner) look(i int) bool {
	if i+windowSize > len(s.src) {
		return false
	}
	if specialsOf((*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(s.src)), i)), &s.window.marks) {
		s.wide = highs
	}
	s.window.end = i + windowSize
	return true
}

// leave reads 64 bytes at a time, with the vector instructions of every amd64 processor. See
// [leaveWords], which every other processor uses.
func leave(s string, i, depth int) (end int, found bool) {
	if depth == 0 {
		i, depth = i+1, 1
	}
	var in blockState
	for ; i+blockSize <= len(s); i += blockSize {
		p := (*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(s)), i))
		if end, depth = in.leave(p, depth); end >= 0 {
			return i + end, true
		}
	}
	var last [blockSize]byte
	if i < len(s) {
		copy(last[:], s[i:])
		if end, _ = in.leave(&last[0], depth); end >= 0 {
			return i + end, true
		}
	}
	return len(s), false
}

// blockState is the state at the end of a block.
type blockState struct {
	inside  uint64 // all bits are set if the next block begins in a string
	escaped uint64 // 1 if the first byte of the next block is escaped
}

// leave returns the offset in the block at p behind the object or list that is depth deep; -1: it
// ends later, and deep is the depth at the end of the block.
func (in *blockState) leave(p *byte, depth int) (end, deep int) {
	quotes, slashes, opening, closing := masksOf(p)
	if slashes|in.escaped != 0 {
		quotes &^= in.escapes(slashes)
	}
	within := in.inside
	if quotes != 0 {
		within ^= parities(quotes)
		in.inside = uint64(int64(within) >> 63) //nolint:gosec // the highest bit, in all places
	}
	opening, closing = opening&^within, closing&^within
	n := bits.OnesCount64(closing)
	if n >= depth {
		for rest, closed := closing, 1; rest != 0; rest, closed = rest&(rest-1), closed+1 {
			at := bits.TrailingZeros64(rest)
			if depth+bits.OnesCount64(opening&(1<<at-1)) == closed {
				return at + 1, 0
			}
		}
	}
	return -1, depth + bits.OnesCount64(opening) - n
}

// escapes returns the escaped bytes: each that follows an odd number of backslashes. The difference
// carries through a series of backslashes, which shows whether its length is odd (as in simdjson's
// find_escaped).
func (in *blockState) escapes(slashes uint64) uint64 {
	const odd = 0xaaaaaaaaaaaaaaaa
	starts := slashes &^ in.escaped
	codes := (starts<<1 | odd) - starts ^ odd
	escaped := codes ^ (slashes | in.escaped)
	in.escaped = codes & slashes >> 63
	return escaped
}

// parities sets each bit for which the number of bits of x at and below it is odd.
func parities(x uint64) uint64 {
	x ^= x << 1
	x ^= x << 2
	x ^= x << 4
	x ^= x << 8
	x ^= x << 16
	return x ^ x<<32
}
