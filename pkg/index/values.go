package index

import (
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// values are the values of an object for each Spec. They are immutable. Objects with equal values
// share them, and they share no memory with the text of an object: the map of an index keeps a
// value for as long as an object has it, and so would keep the text of the first of these objects.
type values struct {
	all  []string // the values of all Specs, one after the other
	ends []int32  // the end of the values of each Spec in all
}

// of returns the values for one Spec.
func (v *values) of(spec int) []string {
	begin := int32(0)
	if spec > 0 {
		begin = v.ends[spec-1]
	}
	return v.all[begin:v.ends[spec]]
}

func (v *values) equal(other *values) bool {
	return slices.Equal(v.ends, other.ends) && slices.Equal(v.all, other.all)
}

// evaluation is the memory for the evaluation of the Specs on one object.
type evaluation struct {
	reader cel.Reader
	values values
}

func (e *evaluation) run(specs []Spec, o *event.Object) {
	e.reader.Reset(o)
	e.values.all, e.values.ends = e.values.all[:0], e.values.ends[:0]
	for i := range specs {
		e.values.all = specs[i].values(e.values.all, &e.reader, o)
		e.values.ends = append(e.values.ends, int32(len(e.values.all))) //nolint:gosec // an object has fewer values than bytes
	}
	e.reader.Reset(nil)
}

// valuesOf returns the values of an object. before are those of the object that it replaces; nil:
// none.
func (v *view) valuesOf(o *event.Object, before *values) *values {
	e, _ := v.scratch.Get().(*evaluation)
	if e == nil {
		e = new(evaluation)
	}
	defer v.scratch.Put(e)
	e.run(v.specs, o)
	if before == nil || !before.equal(&e.values) {
		before = v.keep(&e.values)
	}
	clear(e.values.all) // pieces of the text
	return before
}

// keep returns values that last: those of another object with equal values, or a copy.
func (v *view) keep(found *values) *values {
	kept := &values{all: make([]string, 0, len(found.all)), ends: slices.Clone(found.ends)}
	v.lock.RLock()
	defer v.lock.RUnlock()
	for spec := range v.specs {
		for _, value := range found.of(spec) {
			other := v.neighbour(spec, value)
			if other != nil && other.equal(found) {
				return other
			}
			kept.all = append(kept.all, other.copyOf(spec, value))
		}
	}
	return kept
}

// copyOf returns the string among the values that is equal to a value, or a copy of it.
func (v *values) copyOf(spec int, value string) string {
	if v != nil {
		if i := slices.Index(v.of(spec), value); i >= 0 {
			return v.of(spec)[i]
		}
	}
	return strings.Clone(value)
}

// neighbour returns the values of some object that has a value for a Spec; nil: there is none.
// The caller holds the lock.
func (v *view) neighbour(spec int, value string) *values {
	for key := range v.indices[v.specs[spec].Name][value] {
		if e := v.entry(key); e != nil {
			return e.base().values
		}
	}
	return nil
}
