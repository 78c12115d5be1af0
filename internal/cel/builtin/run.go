package builtin

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Run is the state that our functions use in one evaluation. It is the first argument of their
// calls, and belongs to one goroutine.
type Run struct {
	Meter   jsonval.Meter
	Delta   *event.Delta     // nil: the evaluation has only an object
	Cache   Cache            // nil: there are no other objects
	Paths   []fieldpath.Path // of the calls of changed()
	Sources *Sources         // of look-ups
}

// Sources has the known types of the objects of other sources.
type Sources struct {
	Infos  map[string]*jsonval.TypeInfo // by source
	Owners map[string]Owner             // see [cel.EnvConfig.Owners]
}

// Cache answers lookup, count, get and list. Its methods must be safe for concurrent use and return
// at once.
type Cache interface {
	// Lookup returns the objects of a source that an index has under value; index "": all. The
	// slice is not modified.
	Lookup(source, index, value string) []*event.Object
	// Count returns the number of objects that Lookup would return.
	Count(source, index, value string) int
	// Get returns an object or nil.
	Get(source, namespace, name string) *event.Object
}

// Found returns an object of another source as a value, or null for nil.
func (in *Run) Found(source string, obj *event.Object) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	return in.Meter.Typed(string(obj.Raw()), in.Sources.Infos[source])
}

// A Run is a ref.Val so that it can be an argument of our functions; expressions cannot use it.

// ConvertToNative implements [ref.Val].
func (in *Run) ConvertToNative(reflect.Type) (any, error) {
	return nil, celerr.Wrong("not a value")
}

// ConvertToType implements [ref.Val].
func (in *Run) ConvertToType(t ref.Type) ref.Val {
	return jsonval.Convert(in, types.UnknownType, t)
}

// Equal implements [ref.Val].
func (in *Run) Equal(other ref.Val) ref.Val { return types.Bool(in == other) }

// Type implements [ref.Val].
func (in *Run) Type() ref.Type { return types.DynType }

// Value implements [ref.Val].
func (in *Run) Value() any { return nil }
