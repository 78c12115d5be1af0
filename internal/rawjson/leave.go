package rawjson

import "math/bits"

// longWords is the number of words from which on a string counts as long.
const longWords = 4

// Leave returns the offset behind an object or list. i must be within it, outside of a string, and
// depth is the number of open objects and lists between. With depth 0 the object or list begins at
// i. The text must have been checked; if it ends early, Leave returns its length.
//
// It does not read byte by byte: most of the cost of an expression on a large object is to skip the
// rest of the object.
func Leave(s string, i, depth int) int {
	end, _ := leave(s, i, depth)
	return end
}

// leaveWords reads eight bytes at a time. It is [leave] for processors without a version of their
// own. found is false if the text ends early.
func leaveWords(s string, i, depth int) (end int, found bool) {
	inside := uint64(0) // ones if i is in a string
	for long := 0; i+8 <= len(s); {
		w := word(s, i)
		quotes := equalBytes(w, '"')
		if long++; inside == 0 || quotes != 0 {
			long = 0
		}
		// The standard library skips long strings with vector instructions.
		if long == longWords {
			i, inside, long = skipString(s, i), 0, 0
			continue
		}
		brackets := w | 0x20*ones                              // [ becomes {, and ] becomes }
		if (brackets&(0x7f*ones)+(0x80-'{')*ones)&highs == 0 { // neither a brace nor a backslash
			inside ^= ones * uint64(bits.OnesCount64(quotes)&1)
			i += 8
			continue
		}
		if equalBytes(w, '\\') == 0 {
			// A byte is in a string if an odd number of quotes precedes it: the product adds up
			// those of the bytes before each.
			within := (quotes*ones)&ones ^ inside
			closing := bits.OnesCount64(equalBytes(brackets, '}') &^ within)
			if closing == 0 || closing < depth {
				depth += bits.OnesCount64(equalBytes(brackets, '{')&^within) - closing
				inside = within >> 56 * ones
				i += 8
				continue
			}
		}
		if i, depth, inside, found = leaveSlowly(s, i, i+8, depth, inside); found {
			return i, true
		}
	}
	i, _, _, found = leaveSlowly(s, i, len(s), depth, inside)
	return i, found
}

// leaveSlowly continues to end, or one byte further if that byte is escaped.
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

// equalBytes sets the lowest bit of each byte of w that equals c.
func equalBytes(w uint64, c byte) uint64 {
	w ^= ones * uint64(c)
	return ^((w&(0x7f*ones) + 0x7f*ones) | w | 0x7f*ones) >> 7
}
