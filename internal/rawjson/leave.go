package rawjson

import "math/bits"

// longWords is how many words of a string make it a long one.
const longWords = 4

// Leave returns the offset behind the object or list that i stands in, at so many objects and lists
// inside of it, and not in a string. With depth 0 it is the one that begins at i. The text must
// have been checked; if it ends before, its length is returned.
//
// Eight bytes are looked at at a time. Most of what an expression costs on a large object is to get
// past what it does not ask for.
func Leave(s string, i, depth int) int {
	inside := uint64(0) // ones if i is in a string
	for long := 0; i+8 <= len(s); {
		w := word(s, i)
		quotes := equalBytes(w, '"')
		if long++; inside == 0 || quotes != 0 {
			long = 0
		}
		// the standard library goes through long strings with vector instructions
		if long == longWords {
			i, inside, long = skipString(s, i), 0, 0
			continue
		}
		brackets := w | 0x20*ones                              // [ becomes {, and ] becomes }
		if (brackets&(0x7f*ones)+(0x80-'{')*ones)&highs == 0 { // neither those nor a backslash
			inside ^= ones * uint64(bits.OnesCount64(quotes)&1)
			i += 8
			continue
		}
		if equalBytes(w, '\\') == 0 {
			// A byte is in a string if an odd number of quotes stands before it: the product adds
			// up those of the bytes before each.
			within := (quotes*ones)&ones ^ inside
			closing := bits.OnesCount64(equalBytes(brackets, '}') &^ within)
			if closing == 0 || closing < depth {
				depth += bits.OnesCount64(equalBytes(brackets, '{')&^within) - closing
				inside = within >> 56 * ones
				i += 8
				continue
			}
		}
		var done bool
		if i, depth, inside, done = leaveSlowly(s, i, i+8, depth, inside); done {
			return i
		}
	}
	i, _, _, _ = leaveSlowly(s, i, len(s), depth, inside)
	return i
}

// leaveSlowly goes on to end, or one byte further if that one is escaped.
func leaveSlowly(s string, i, end, depth int, inside uint64) (next, deep int, in uint64, done bool) {
	for ; i < end; i++ {
		switch c := s[i]; {
		case inside != 0 && c == '\\':
			i++
		case c == '"':
			inside ^= ones
		case inside != 0:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, 0, 0, true
			}
		}
	}
	return min(i, len(s)), depth, inside, false
}

// equalBytes has the lowest bit of each byte of w that is c.
func equalBytes(w uint64, c byte) uint64 {
	w ^= ones * uint64(c)
	return ^((w&(0x7f*ones) + 0x7f*ones) | w | 0x7f*ones) >> 7
}
