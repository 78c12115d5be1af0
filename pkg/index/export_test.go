package index

import (
	"math"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// SetPace sets the times of the passes that compress objects, see [pace].
func (s *Store) SetPace(period, turn time.Duration, least int64) {
	s.resting.pace = pace{period, turn, least, math.MaxInt64}
}

// Plain returns the bytes of the objects that are not compressed.
func (s *Store) Plain() int64 { return s.plain.Load() }

// Restored returns an object that was compressed against a sample; nil: it cannot be compressed.
func Restored(sample, o *event.Object) *event.Object {
	d := dictionary{resource: o.Resource(), texts: newTexts(slices.Values([]*event.Object{sample}))}
	var b buffers
	if d.texts == nil {
		return nil
	}
	if c := d.compress(&plain{object: o}, &b); c != nil {
		return c.load()
	}
	return nil
}

// CompressAfter compresses the object of a key, calls change, and only then replaces the entry.
func (s *Store) CompressAfter(key event.Key, change func()) (done bool) {
	v := s.live.Load()
	p := v.entry(key.String()).(*plain)
	var b buffers
	c := (&dictionary{resource: p.object.Resource(), texts: newTexts(v.all())}).compress(p, &b)
	change()
	return s.exchange(v, p, c)
}

// Compressor returns a function that compresses an object, and returns two ways to read the result.
func (s *Store) Compressor() func(*event.Object) (load, read func() *event.Object) {
	texts := newTexts(s.All())
	var d *dictionary
	var b buffers
	return func(o *event.Object) (load, read func() *event.Object) {
		if d == nil {
			d = &dictionary{resource: o.Resource(), texts: texts}
		}
		c := d.compress(&plain{head{key: o.Key().String()}, o}, &b)
		return c.load, c.read
	}
}
