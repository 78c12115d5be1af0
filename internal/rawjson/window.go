package rawjson

import "math/bits"

const (
	// blockSize is the number of bytes that have a word of marks.
	blockSize = 64
	// windowSize is the number of bytes that are marked together.
	windowSize = 8 * blockSize
)

// window has a mark for each special byte in a part of a text: a quote, a backslash or a control
// character. A string ends at one of them, so most strings are checked by a look at one word. The
// zero window is empty.
type window struct {
	end   int // of the part
	marks [windowSize / blockSize]uint64
}

// next returns the offset of the first special byte from i on, or the offset at which the search
// goes on. known is false if i is not in the window.
func (w *window) next(i int) (at int, found, known bool) {
	n := uint(i - w.end + windowSize) //nolint:gosec // before the window: a large number
	if n >= windowSize {
		return i, false, false
	}
	mark := w.marks[n/blockSize] >> (n % blockSize)
	if mark == 0 {
		return i + blockSize - int(n%blockSize), false, true //nolint:gosec // less than a block
	}
	return i + bits.TrailingZeros64(mark), true, true
}
