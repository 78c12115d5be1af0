package fields

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Section is the name of the custom section of a module with the fields that it reads: a path per
// line.
const Section = "deltarouter.fields"

// Declared returns the set that a module declares; nil if it declares none. Several sections count
// as one, as linkers join them.
func Declared(module []byte) (*Set, error) {
	var paths []string
	for text := range sections(module) {
		for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == 0 }) {
			if line = strings.TrimSpace(line); line != "" {
				paths = append(paths, line)
			}
		}
	}
	set, err := New(paths)
	if err != nil {
		return nil, fmt.Errorf("its section %s: %w", Section, err)
	}
	return set, nil
}

const header = 8 // bytes before the first section

// sections yields the contents of the sections. It ends at the first part that is no section.
func sections(module []byte) func(yield func(text string) bool) {
	return func(yield func(string) bool) {
		for rest := module[min(header, len(module)):]; len(rest) > 0; {
			id := rest[0]
			content, after, ok := counted(rest[1:])
			if !ok {
				return
			}
			rest = after
			if id != 0 {
				continue
			}
			if name, text, ok := counted(content); ok && string(name) == Section && !yield(string(text)) {
				return
			}
		}
	}
}

// counted cuts a number of bytes from a text that begins with that number.
func counted(text []byte) (part, after []byte, ok bool) {
	size, n := binary.Uvarint(text)
	if n <= 0 || size > uint64(len(text)-n) {
		return nil, nil, false
	}
	return text[n:][:size], text[n:][size:], true
}
