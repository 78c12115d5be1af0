package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const docs = "../../docs/img"

// TestUpToDate: the images in docs/img are those that `make generate` makes, and there are no
// others.
func TestUpToDate(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(docs, "*.diagram"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no diagrams in %s: %v", docs, err)
	}
	known := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		images, err := draw(filepath.Base(file), string(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range images {
			known[name] = true
			if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || string(got) != want {
				t.Errorf("docs/img/%s is not what docs/img/%s says (%v): run make generate", name, filepath.Base(file), err)
			}
			if err := xml.Unmarshal([]byte(want), new(struct{})); err != nil {
				t.Errorf("%s is no XML: %v", name, err)
			}
		}
	}
	svgs, _ := filepath.Glob(filepath.Join(docs, "*.svg")) // the pattern is right
	for _, svg := range svgs {
		if !known[filepath.Base(svg)] {
			t.Errorf("%s belongs to no diagram", svg)
		}
	}
}

// TestParse: errors name the line, and arrows take the shortest of three shapes.
func TestParse(t *testing.T) {
	const head = "size 100 100\ntitle \"a\"\nbox a 0 0 10 10 A\nbox b 20 0 10 10 B\nbox c 0 20 10 10 C\nbox d 40 40 10 10 D\n"
	tests := []struct{ name, line, want string }{
		{"to the right", "arrow a b", `d="M10 5H20"`},
		{"to the left", "arrow b a", `d="M20 5H10"`},
		{"down", "arrow a c", `d="M5 10V20"`},
		{"up", "arrow c a", `d="M5 20V10"`},
		{"with an elbow", "arrow a d", `d="M10 5H45V40"`},
		{"dashed, with a label", `arrow a b "x < y" dashed`, `stroke-dasharray`},
		{"a label is escaped", `arrow a b "x < y"`, `x &lt; y`},
		{"an unknown box", "arrow a z", "f:7: arrow: no box a or z above"},
		{"the same box", "box a 1 1 1 1 A", "f:7: box: a exists already"},
		{"no number", "box z 1 1 x 1 A", "f:7: box: x is no number"},
		{"an unknown statement", "line a b", "f:7: line: no such statement"},
		{"too few numbers", "note 1", "f:7: note: want 2 numbers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := parse("f", head+tt.line+"\n")
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = d.svg(themes[0])
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want it to have %s", got, tt.want)
			}
		})
	}
	if _, err := parse("f", "size 1 1\n"); err == nil {
		t.Error("a diagram without a title is fine")
	}
}
