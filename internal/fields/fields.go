// Package fields contains the fields that a handler reads. A handler declares them with `fields:`
// in its configuration, or in a section of its module, and then gets objects with only these
// fields.
package fields

import (
	"slices"
	"unsafe"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Set is a set of fields. It is immutable and safe for concurrent use. nil is the whole object.
type Set struct {
	paths     []string
	selection *rawjson.Selection
}

// identity returns the fields that are in every set.
func identity() [][]string {
	return [][]string{
		{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"},
	}
}

// New returns the set of some paths; nil if there are none. The error is about the first mistake.
func New(paths []string) (*Set, error) {
	if len(paths) == 0 {
		return nil, nil //nolint:nilnil // nil is a valid set
	}
	for _, mistake := range Check(paths) {
		return nil, mistake.Err
	}
	s := &Set{paths: slices.Clone(paths), selection: rawjson.NewSelection()}
	for _, keys := range identity() {
		s.selection.Add(keys...)
	}
	for _, path := range paths {
		keys, _ := Parse(path) // Check has accepted it
		s.selection.Add(keys...)
	}
	return s, nil
}

// Paths returns the paths as they were declared, without those of the identity of an object.
func (s *Set) Paths() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.paths)
}

// textSize is the expected number of bytes of the fields of an object.
const textSize = 384

// Batch returns copies of the deltas whose objects have only the fields of the set. The deltas of
// the whole object are the batch itself.
func (s *Set) Batch(batch []*event.Delta) []*event.Delta {
	if s == nil {
		return batch
	}
	copies, selected := make([]event.Delta, len(batch)), make([]*event.Delta, len(batch))
	text := make([]byte, 0, 2*textSize*len(batch))
	for i, d := range batch {
		copies[i] = *d
		selected[i] = &copies[i]
		text = s.selectOf(text, &copies[i].New)
		text = s.selectOf(text, &copies[i].Old)
	}
	return selected
}

// selectOf replaces an object by one with the fields of the set, whose text it appends. The objects
// share the memory of the text: nothing writes to the part that has been appended.
func (s *Set) selectOf(text []byte, object **event.Object) []byte {
	o := *object
	if o == nil {
		return text
	}
	at := len(text)
	text = s.selection.Append(text, string(o.Raw()))
	// The fields contain the identity, so the error is that of no object.
	if selected, err := event.ParseObject(o.Resource(), unsafe.String(&text[at], len(text)-at)); err == nil {
		*object = selected
	}
	return text
}
