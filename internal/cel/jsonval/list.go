package jsonval

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// List is a JSON array as a list of CEL. The positions of its elements are found once, at the first
// use.
type List struct {
	open  string // begins with the array
	meter *Meter
	info  *TypeInfo // of the list; nil: unknown
	elems []rawjson.Value
}

// elementWork is the work of finding an element or a field, beside its bytes.
const elementWork = 16

var (
	_ traits.Lister   = (*List)(nil)
	_ traits.Foldable = (*List)(nil)
	_ traits.Zeroer   = (*List)(nil)
)

func (l *List) items() []rawjson.Value {
	if l.elems == nil {
		l.elems = make([]rawjson.Value, 0, 4)
		n := 0
		for elem := range rawjson.Value(l.open).Elems() {
			l.elems = append(l.elems, elem)
			n += len(elem) + elementWork
		}
		l.meter.Charge(n)
	}
	return l.elems
}

// Raw returns the text of the whole array.
func (l *List) Raw() rawjson.Value {
	raw := rawjson.Closed(l.open)
	l.meter.Charge(len(raw))
	return raw
}

// Get implements traits.Indexer.
func (l *List) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		if types.IsUnknownOrError(index) {
			return index
		}
		return types.WrapErr(celerr.Wrong("the index of a list is not a whole number"))
	}
	items := l.items()
	if i < 0 || i >= len(items) {
		return types.WrapErr(celerr.Absent("index out of bounds"))
	}
	return l.value(items[i])
}

// Contains implements traits.Container: elem in list.
func (l *List) Contains(elem ref.Val) ref.Val {
	if types.IsUnknownOrError(elem) {
		return elem
	}
	for _, item := range l.items() {
		if types.Equal(elem, l.value(item)) == types.True {
			return types.True
		}
	}
	return types.False
}

// Add implements traits.Adder.
func (l *List) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.info.Unordered() {
		return l.merge(o)
	}
	return standardList(l).(traits.Adder).Add(o)
}

// Size implements traits.Sizer.
func (l *List) Size() ref.Val { return types.Int(len(l.items())) }

// IsZeroValue implements traits.Zeroer for optional.ofNonZeroValue.
func (l *List) IsZeroValue() bool { return len(l.items()) == 0 }

// Iterator implements traits.Iterable.
func (l *List) Iterator() traits.Iterator {
	return &iterator{list: l, elems: l.items()}
}

// Fold implements traits.Foldable for macros of two variables.
func (l *List) Fold(f traits.Folder) {
	for i, item := range l.items() {
		if !f.FoldEntry(types.Int(i), l.value(item)) {
			return
		}
	}
}

// Equal implements ref.Val for lists of both kinds.
func (l *List) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*List); ok && (l.info == nil && o.info == nil || l.Raw() == o.Raw()) {
		return types.Bool(Equal(l.Raw(), o.Raw()))
	}
	o, ok := other.(traits.Lister)
	if !ok || l.Size() != o.Size() {
		return types.False
	}
	if l.info.Unordered() {
		return l.sameElements(o)
	}
	for i, item := range l.items() {
		if types.Equal(l.value(item), o.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (l *List) ConvertToNative(want reflect.Type) (any, error) {
	if isType(l, want) {
		return l, nil
	}
	return standardList(l).ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (l *List) ConvertToType(t ref.Type) ref.Val { return Convert(l, types.ListType, t) }

// Type implements ref.Val.
func (l *List) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *List) Value() any { return standardList(l).Value() }

// String hides the content: cel-go prints values in some of its errors.
func (l *List) String() string { return "[…]" }

// iterator yields the keys of a map or the elements of a list.
type iterator struct {
	keys  []string
	list  *List
	elems []rawjson.Value
	next  int
}

var _ traits.Iterator = (*iterator)(nil)

// HasNext implements traits.Iterator.
func (it *iterator) HasNext() ref.Val { return types.Bool(it.next < len(it.keys)+len(it.elems)) }

// Next implements traits.Iterator.
func (it *iterator) Next() ref.Val {
	i := it.next
	it.next++
	switch {
	case i < len(it.keys):
		return types.String(it.keys[i])
	case i < len(it.elems):
		return it.list.value(it.elems[i])
	}
	return nil
}

// The rest of ref.Val, which an iterator has only in name.

func (it *iterator) ConvertToNative(reflect.Type) (any, error) {
	return nil, celerr.Wrong("an iterator cannot be converted")
}

func (it *iterator) ConvertToType(t ref.Type) ref.Val { return Convert(it, types.IteratorType, t) }

func (it *iterator) Equal(other ref.Val) ref.Val { return types.Bool(it == other) }

func (it *iterator) Type() ref.Type { return types.IteratorType }

func (it *iterator) Value() any { return nil }

// value returns the value of an element.
func (l *List) value(item rawjson.Value) ref.Val {
	if l.info == nil {
		return l.meter.Value(item)
	}
	return l.meter.Typed(string(item), l.info.Elem)
}
