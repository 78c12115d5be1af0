package wire

import (
	"bytes"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// splitter returns the number of unread bytes up to the end of the last complete value among them.
// If it is 0, want is the number of unread bytes for the next try; 0: reading more does not help.
type splitter func(in *Stream) (n, want int)

// fullBlock is the size from which on a block of lines is decoded before its reader has to wait:
// the API server sends each event by itself, and a block for each would cost a quarter of its
// decoding.
const fullBlock = 32 << 10

// lineSplitter returns the splitter of a stream of initial events, which each end with a newline.
// It holds lines back only until there is a bookmark, which ends the initial events.
func lineSplitter() splitter {
	looked, whole, ended := 0, 0, false // whole is the length of the complete lines
	return func(s *Stream) (n, want int) {
		if whole == 0 && s.skipSpace() {
			looked = 0
		}
		unread := s.buf[s.start:s.end]
		for {
			i := bytes.IndexByte(unread[looked:], '\n') + 1
			if i == 0 {
				looked = len(unread)
				break
			}
			ended = ended || isBookmark(unread[whole:looked+i])
			looked += i
			whole = looked
		}
		if whole >= fullBlock || whole > 0 && (ended || unread[len(unread)-1] == '}') { // perhaps the last event
			n, looked, whole = whole, looked-whole, 0
			return n, 0
		}
		if whole == 0 && !s.incomplete() {
			return 0, 0
		}
		return 0, len(unread) + 1
	}
}

// isBookmark reports whether a line may be a bookmark: its type is the first or the last member.
func isBookmark(line []byte) bool {
	const near = 64
	bookmark := []byte(`"BOOKMARK"`)
	return bytes.Contains(line[:min(near, len(line))], bookmark) || bytes.Contains(line[max(0, len(line)-near):], bookmark)
}

// itemSplitter returns the splitter of the items of a list.
func itemSplitter() splitter {
	begun := false // there was an item, so that the next one is behind a comma
	return func(s *Stream) (n, want int) {
		text := s.unread()
		want = max(longList, 2*len(text))
		for {
			at := skipSpace(text, n)
			if begun && at < len(text) {
				if text[at] != ',' {
					return n, 0
				}
				at = skipSpace(text, at+1)
			}
			if at == len(text) {
				return n, want
			}
			if text[at] != '{' || len(text)-n > s.max {
				return n, 0
			}
			// A value that ends with the text may be incomplete.
			if at = rawjson.Leave(text, at, 0); at == len(text) {
				return n, want
			}
			n, begun = at, true
		}
	}
}
