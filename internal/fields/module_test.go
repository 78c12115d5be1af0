package fields_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fields"
)

const head = "\x00asm\x01\x00\x00\x00"

func sized(text string) string {
	return string(binary.AppendUvarint(nil, uint64(len(text)))) + text
}

func custom(name, content string) string { return "\x00" + sized(sized(name)+content) }

func TestDeclared(t *testing.T) {
	types := "\x01" + sized("\x00")
	for _, tt := range []struct {
		name, module string
		want         []string
		err          string
	}{
		{"no section", head + types, nil, ""},
		{"another section", head + custom("name", "status.phase") + types, nil, ""},
		{"one path", head + types + custom(fields.Section, "status.phase"), []string{"status.phase"}, ""},
		{"lines", head + custom(fields.Section, "\nstatus.phase\r\n metadata.labels\n\n") + types, []string{"status.phase", "metadata.labels"}, ""},
		{"texts in C", head + custom(fields.Section, "a\x00b.c\x00"), []string{"a", "b.c"}, ""},
		{"two sections", head + custom(fields.Section, "a\n") + types + custom(fields.Section, "b"), []string{"a", "b"}, ""},
		{"empty", head + custom(fields.Section, ""), nil, ""},
		{"a mistake", head + custom(fields.Section, "status[0]"), nil, `its section deltarouter.fields: "status[0]": a path has no index`},
		{"too many", head + custom(fields.Section, strings.Repeat("a\n", 300)), nil, "its section deltarouter.fields: there are 300 fields, at most 256 are possible"},
		{"a damaged section", head + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", nil, ""},
		{"a damaged name", head + "\x00\x02\x09a" + custom(fields.Section, "a"), []string{"a"}, ""},
		{"a short module", "\x00as", nil, ""},
	} {
		set, err := fields.Declared([]byte(tt.module))
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err)) || !slices.Equal(set.Paths(), tt.want) {
			t.Errorf("%s: got %q, %v", tt.name, set.Paths(), err)
		}
	}
}

// FuzzDeclared: no module makes the reader fail, and each set that it returns is valid.
func FuzzDeclared(f *testing.F) {
	f.Add([]byte(head + custom(fields.Section, "status.phase\nmetadata")))
	f.Add([]byte(head + "\x00\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, module []byte) {
		given := bytes.Clone(module)
		set, err := fields.Declared(module)
		if err == nil && fields.Check(set.Paths()) != nil || !bytes.Equal(given, module) {
			t.Errorf("got %q", set.Paths())
		}
	})
}
