package frame

import (
	"encoding/binary"
	"slices"
)

// The kinds of operations.
const (
	Make     = 'm' // the bucket, if it is absent
	Put      = 'p' // Value under Key
	Remove   = 'r' // the value of Key, if there is one
	Drop     = 'd' // the bucket Key in the bucket, with its content, if there is one
	Sequence = 's' // Number becomes the sequence of the bucket
)

// An operation is its kind and its fields: p key value, r key, d key, s number. It concerns the
// bucket of the last m or u: m path, the number of its names and these, is the next place; u
// number, a place from before.
const use = 'u'

// maxDepth limits the names of a path.
const maxDepth = 8

// Recorder records the operations of a transaction. A nil Recorder records nothing.
type Recorder struct {
	ops     []byte
	places  map[string]uint64
	current string
	over    bool
}

// NewRecorder returns a recorder with memory for size bytes.
func NewRecorder(size int) *Recorder {
	return &Recorder{ops: make([]byte, 0, size), places: make(map[string]uint64)}
}

// Place encodes the path of a bucket for the methods of a recorder. It is empty without a recorder.
func (r *Recorder) Place(path ...string) string {
	if r == nil {
		return ""
	}
	place := binary.AppendUvarint(nil, uint64(len(path)))
	for _, name := range path {
		place = append(binary.AppendUvarint(place, uint64(len(name))), name...)
	}
	return string(place)
}

// Make records that the bucket exists.
func (r *Recorder) Make(place string) {
	if r != nil {
		r.current = ""
		r.at(place)
	}
}

// Put records a value.
func (r *Recorder) Put(place string, key, stored []byte) {
	if r.at(place) {
		r.ops = append(r.ops, Put)
		r.bytes(key)
		r.bytes(stored)
	}
}

// Remove records the removal of a value.
func (r *Recorder) Remove(place string, key []byte) {
	if r.at(place) {
		r.ops = append(r.ops, Remove)
		r.bytes(key)
	}
}

// Drop records the removal of a bucket in a bucket.
func (r *Recorder) Drop(place, name string) {
	if r.at(place) {
		r.ops = append(r.ops, Drop)
		r.bytes([]byte(name))
	}
}

// Sequence records the sequence of a bucket.
func (r *Recorder) Sequence(place string, number uint64) {
	if r.at(place) {
		r.ops = binary.AppendUvarint(append(r.ops, Sequence), number)
	}
}

// at makes a place the current one. It reports whether to record.
func (r *Recorder) at(place string) bool {
	if r == nil || r.over {
		return false
	}
	if len(r.ops) > MaxOps {
		r.ops, r.places, r.over = nil, nil, true
		return false
	}
	if place == r.current {
		return true
	}
	r.current = place
	if number, known := r.places[place]; known {
		r.ops = binary.AppendUvarint(append(r.ops, use), number)
		return true
	}
	r.places[place] = uint64(len(r.places))
	r.ops = append(append(r.ops, Make), place...)
	return true
}

func (r *Recorder) bytes(v []byte) {
	r.ops = append(binary.AppendUvarint(r.ops, uint64(len(v))), v...)
}

// Empty reports whether the transaction has changed nothing.
func (r *Recorder) Empty() bool { return len(r.ops) == 0 && !r.over }

// Ops returns the recorded operations; false: there are more than MaxOps bytes.
func (r *Recorder) Ops() (ops []byte, ok bool) {
	if r.over || len(r.ops) > MaxOps {
		return nil, false
	}
	return r.ops, true
}

// Op is an operation on a bucket.
type Op struct {
	Kind       byte
	Place      int      // the number of the bucket in the frame
	Path       []string // of the bucket
	Key, Value []byte
	Number     uint64
}

// Each calls f with each operation, in order. Its own error wraps [ErrDamaged].
func Each(ops []byte, f func(op *Op) error) error {
	r := reader{rest: ops}
	var paths [][]string
	var op Op
	for len(r.rest) > 0 && !r.failed {
		kind := r.rest[0]
		r.rest = r.rest[1:]
		switch kind {
		case Make:
			paths = append(paths, r.path())
			op.Place = len(paths) - 1
		case use:
			op.Place = int(min(r.uint(), uint64(len(paths))))
			kind = Make
		}
		if op.Place >= len(paths) {
			return damaged("an operation has no bucket")
		}
		op.Kind, op.Path, op.Key, op.Value, op.Number = kind, paths[op.Place], nil, nil, 0
		switch kind {
		case Make:
		case Put:
			op.Key, op.Value = r.bytes(), r.bytes()
		case Remove, Drop:
			op.Key = r.bytes()
		case Sequence:
			op.Number = r.uint()
		default:
			return damaged("it has an operation %q", kind)
		}
		if r.failed {
			break
		}
		if err := f(&op); err != nil {
			return err
		}
	}
	if r.failed {
		return damaged("it is truncated")
	}
	return nil
}

func (r *reader) path() []string {
	n := r.uint()
	if n == 0 || n > maxDepth {
		r.fail()
		return nil
	}
	path := make([]string, n)
	for i := range path {
		path[i] = string(r.bytes())
	}
	if slices.Contains(path, "") {
		r.fail()
	}
	return path
}
