package index

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/klauspost/compress/s2"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// dictionary compresses the texts of objects of one resource, and decompresses them, also
// concurrently. Objects of a resource have their field names and many values in common, so their
// texts are compressed as differences to a few of them. S2 is faster than the codecs that compress
// better: each change of an object at rest decompresses its last state.
type dictionary struct {
	resource *event.Resource
	texts    *s2.Dict
	recent   recent
}

// mostSample is the number of bytes that one object adds to a dictionary at most.
const mostSample = 8 << 10

// newTexts returns the texts of the first objects that fit in a dictionary; nil: there are none.
func newTexts(objects iter.Seq[*event.Object]) *s2.Dict {
	var texts []byte
	for o := range objects {
		text := o.JSON()
		text = text[:min(len(text), mostSample)]
		if len(texts)+len(text) > s2.MaxDictSize {
			break
		}
		texts = append(texts, text...)
	}
	return s2.MakeDict(texts, nil)
}

// compress returns the entry of the same object in compressed form. Its data is the offsets of the
// values of spec and status in the text as two uvarints, 0: unknown, and the text as a block of S2.
// nil: it would save less than a quarter, or the object would not be restored exactly. The buffers
// are used again.
func (d *dictionary) compress(p *plain, b *buffers) *compressed {
	o, text := p.object, p.object.JSON()
	most := s2.MaxEncodedLen(len(text))
	if most < 0 { // too large for S2
		return nil
	}
	if len(b.block) < most {
		b.block, b.text = make([]byte, most), make([]byte, most)
	}
	var offsets [2 * binary.MaxVarintLen32]byte
	data := binary.AppendUvarint(offsets[:0], offsetOf(o.Place("spec"), text))
	data = binary.AppendUvarint(data, offsetOf(o.Place("status"), text))
	block := d.texts.Encode(b.block, text)
	if len(data)+len(block) > len(text)/4*3 {
		return nil
	}
	c := &compressed{head: p.head, by: d, data: string(data) + string(block)}
	restored, err := d.decompress(c.data, b.text)
	if err != nil || !bytes.Equal(restored.JSON(), text) || !restored.Same(o) {
		return nil
	}
	return c
}

// offsetOf returns the offset of the last part of a text; 0: the part is empty.
func offsetOf(part string, text []byte) uint64 {
	if part == "" {
		return 0
	}
	return uint64(len(text) - len(part))
}

// buffers are those of a caller of compress: for a block of S2, and for the text that is restored
// from it.
type buffers struct{ block, text []byte }

// decompress returns the object, whose text is in the buffer if that is large enough.
func (d *dictionary) decompress(data string, buffer []byte) (*event.Object, error) {
	b := unsafe.Slice(unsafe.StringData(data), len(data))
	spec, n := binary.Uvarint(b)
	status, m := binary.Uvarint(b[n:])
	text, err := d.texts.Decode(buffer, b[n+m:])
	if err != nil {
		return nil, err
	}
	// The object is the only reference to the text.
	return event.ParseIndexed(d.resource, unsafe.String(unsafe.SliceData(text), len(text)), uint32(spec), uint32(status)) //nolint:gosec // see offsetOf
}

// recent contains copies of objects at rest that look-ups have read since the last pass. So look-ups
// of the same few objects cost the same whether these are at rest or not. It takes at most 16 MiB.
type recent [1024]atomic.Pointer[restored]

// mostRecent is the size of the largest object in recent, in bytes.
const mostRecent = 16 << 10

type restored struct {
	from   *compressed
	object *event.Object
}

func (r *recent) of(c *compressed) *event.Object {
	slot := &r[maphash.String(seed, c.key)%uint64(len(r))]
	if last := slot.Load(); last != nil && last.from == c {
		return last.object
	}
	o := c.load()
	if o.Size() <= mostRecent {
		slot.Store(&restored{c, o})
	}
	return o
}

func (r *recent) clear() {
	for i := range r {
		r[i].Store(nil)
	}
}
