package deltarouter

import "encoding/json"

// The functions below read parts of a JSON text without decoding all of it. Invalid JSON reads as
// absent.

// space returns the index of the next character that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string whose opening quote is at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(b)
}

// skip returns the index after the value at i.
func skip(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			i = skipString(b, i)
		case c == '{' || c == '[':
			depth++
			i++
			continue
		case c == '}' || c == ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case depth == 0 && (c == ',' || c == ':' || space(b, i) > i):
			return i
		default:
			i++
			continue // inside a number or a word, or nested
		}
		if depth == 0 {
			return i
		}
	}
	return len(b)
}

// member returns the value of a member of an object.
func member(object []byte, key string) []byte {
	i := space(object, 0)
	if i == len(object) || object[i] != '{' {
		return nil
	}
	for i = space(object, i+1); i < len(object) && object[i] == '"'; {
		after := skipString(object, i)
		colon := space(object, after)
		if colon == len(object) || object[colon] != ':' {
			return nil
		}
		start := space(object, colon+1)
		end := skip(object, start)
		if isKey(object[i:after], key) {
			return object[start:end:end]
		}
		if i = space(object, end); i < len(object) && object[i] == ',' {
			i = space(object, i+1)
		}
	}
	return nil
}

// isKey reports whether a quoted key is key.
func isKey(quoted []byte, key string) bool {
	if len(quoted) <= len(key)+2 { // without escapes
		return len(quoted) == len(key)+2 && string(quoted[1:len(quoted)-1]) == key
	}
	return Value(quoted).Text() == key
}

// elements returns the elements of an array.
func elements(array []byte) (all []json.RawMessage) {
	if len(array) == 0 || array[0] != '[' {
		return nil
	}
	for i := space(array, 1); i < len(array) && array[i] != ']'; {
		end := skip(array, i)
		if end == i {
			return all
		}
		all = append(all, array[i:end:end])
		if i = space(array, end); i < len(array) && array[i] == ',' {
			i = space(array, i+1)
		}
	}
	return all
}
