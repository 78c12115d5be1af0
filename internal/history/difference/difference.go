// Package difference stores a text as its difference to another one. The states of an object before
// and after a change are nearly equal, so a difference is a few dozen bytes, and takes about as
// long as to compare the two.
//
// A difference is a sequence of pieces. Each is a number of new bytes, these bytes, a number of
// bytes that are copied from the old text, and their place in it: how far it is from the place that
// follows from the piece before, if the new bytes had replaced as many old ones. Numbers are
// varints, as of package encoding/binary. A usual piece is a changed value of the same length,
// whose place is 0.
package difference

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
	"unsafe"
)

const (
	// least is the number of equal bytes that are worth a piece.
	least = 12
	// near is the number of bytes after a difference in which the same place of both texts is tried
	// before all places of the old text are.
	near = 64
	// window is the number of bytes of the old text after a difference that are searched before the
	// table is made: most often a value of another length has changed.
	window = 512
	// anchor is the number of bytes that are searched there.
	anchor = 24
)

// Differ makes differences. The zero Differ is ready. It is not safe for concurrent use.
type Differ struct {
	old, now string
	at       int // the place in old after the last piece
	done     int // bytes of now
	// places has the places of the old text by the hash of their bytes, plus 1: of several with one
	// hash the first. It is made when a difference needs it.
	places  [1 << tableBits]int32
	indexed bool
}

// Append appends the difference of a text to an old one. Texts of 2 GiB and more are not possible.
func (w *Differ) Append(b []byte, old, now string) []byte {
	w.old, w.now, w.at, w.done, w.indexed = old, now, 0, 0, false
	defer func() { w.old, w.now = "", "" }()
	for {
		from, inserted := w.at, w.done
		// a piece: the new bytes up to the next equal ones, and those
		place, ok := w.next()
		b = binary.AppendUvarint(b, uint64(w.done-inserted)) //nolint:gosec // not negative
		b = append(b, now[inserted:w.done]...)
		if !ok {
			return b
		}
		n := common(old[place:], now[w.done:])
		b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // not negative
		b = binary.AppendVarint(b, int64(place-from-(w.done-inserted)))
		w.at, w.done = place+n, w.done+n
		if w.done == len(now) {
			return b
		}
	}
}

// next moves done to the next bytes that are in the old text, and returns their place there. ok is
// false if there are none.
func (w *Differ) next() (place int, ok bool) {
	from, begun := w.at, w.done
	// most often a value of the same length has changed
	for skipped := 0; skipped <= near && w.done < len(w.now) && from+skipped < len(w.old); skipped++ {
		if w.equals(from + skipped) {
			return from + skipped, true
		}
		w.done++
	}
	if place, ok = w.shifted(from, begun); ok {
		return place, true
	}
	w.index()
	for w.done = begun; w.done < len(w.now); w.done++ {
		if place, ok = w.find(); ok {
			// the table has one of several places only
			for place > 0 && w.done > begun && w.old[place-1] == w.now[w.done-1] {
				place, w.done = place-1, w.done-1
			}
			return place, true
		}
	}
	return 0, false
}

// shifted finds bytes a little behind a difference in the window of the old text: a value that is
// longer or shorter than before. done is at the first of the equal bytes then.
func (w *Differ) shifted(from, begun int) (place int, ok bool) {
	old := w.old[from:min(len(w.old), from+window)]
	for behind := 8; behind <= 128; behind *= 2 {
		at := begun + behind
		if at+anchor > len(w.now) {
			return 0, false
		}
		i := strings.Index(old, w.now[at:at+anchor])
		if i < 0 {
			continue
		}
		place, w.done = from+i, at
		for place > from && w.done > begun && w.old[place-1] == w.now[w.done-1] {
			place, w.done = place-1, w.done-1
		}
		return place, true
	}
	return 0, false
}

// equals reports whether enough bytes, or all that are left, are at a place of the old text.
func (w *Differ) equals(place int) bool {
	left := len(w.now) - w.done
	n := min(left, least)
	return n > 0 && len(w.old)-place >= n && w.old[place:place+n] == w.now[w.done:w.done+n]
}

const (
	// tableBits is the size of the table of places.
	tableBits = 12
	// step is the distance of the places in the table.
	step = 4
)

// index makes the table of places.
func (w *Differ) index() {
	if w.indexed {
		return
	}
	w.indexed = true
	clear(w.places[:])
	for i := (len(w.old) - 8) &^ (step - 1); i >= 0; i -= step {
		w.places[hash(w.old[i:])] = int32(i) + 1 //nolint:gosec // see Append
	}
}

// find returns a place of the next bytes in the old text.
func (w *Differ) find() (place int, ok bool) {
	if len(w.now)-w.done < 8 {
		return 0, false
	}
	place = int(w.places[hash(w.now[w.done:])]) - 1
	return place, place >= 0 && w.equals(place)
}

// hash returns the hash of the first 8 bytes.
func hash(s string) uint64 { return load(s) * 0x9e3779b97f4a7c15 >> (64 - tableBits) }

func load(s string) uint64 {
	return binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// block is the number of bytes that are compared at once.
const block = 128

// common returns the number of equal bytes at the begin.
func common(a, b string) (n int) {
	a = a[:min(len(a), len(b))]
	for len(a)-n >= block && a[n:n+block] == b[n:n+block] {
		n += block
	}
	for ; len(a)-n >= 8; n += 8 {
		if differ := load(a[n:]) ^ load(b[n:]); differ != 0 {
			return n + bits.TrailingZeros64(differ)/8
		}
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

// ErrDamaged reports a difference that no text has, or that is one to another old text.
var ErrDamaged = errors.New("the difference is damaged, or is not one to this text")

// Apply returns the text of a difference to an old one. The text has at most limit bytes.
func Apply(old string, difference []byte, limit int) (string, error) {
	now := make([]byte, 0, min(limit, len(old)+len(difference)))
	at := 0
	for rest := difference; ; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) || n > uint64(limit-len(now)) { //nolint:gosec // not negative
			return "", ErrDamaged
		}
		now = append(now, rest[size:size+int(n)]...)
		if rest = rest[size+int(n):]; len(rest) == 0 {
			return string(now), nil
		}
		length, size := binary.Uvarint(rest)
		if size <= 0 {
			return "", ErrDamaged
		}
		shift, width := binary.Varint(rest[size:])
		if width <= 0 || shift < -int64(len(old)+limit) || shift > int64(len(old)) {
			return "", ErrDamaged
		}
		place := at + int(n) + int(shift)
		if place < 0 || place > len(old) || length > uint64(len(old)-place) || length > uint64(limit-len(now)) { //nolint:gosec // not negative
			return "", ErrDamaged
		}
		now = append(now, old[place:place+int(length)]...)
		if at, rest = place+int(length), rest[size+width:]; len(rest) == 0 {
			return string(now), nil
		}
	}
}
