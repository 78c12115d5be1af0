package index

import (
	"strings"
	"unsafe"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// entry is an element of the Indexer: an object with its key and its values. It is immutable.
type entry interface {
	base() *head
	// load returns the object. Of a compressed one it makes a copy, which takes some microseconds.
	load() *event.Object
	// read is load for a look-up: the next look-up of the object may get the same copy.
	read() *event.Object
	// home returns [event.Object.Home] of the object.
	home() string
	// size returns the approximate memory of the object in bytes.
	size() int
	// with returns an entry of the same object with other values.
	with(values *values) entry
}

// head is the part of an entry that does not depend on the form of the object.
type head struct {
	key    string
	values *values // nil: the view has no Specs
}

func (h *head) base() *head { return h }

// names returns namespace and name of the object.
func (h *head) names() (namespace, name string) {
	if namespace, name, ok := strings.Cut(h.key, "/"); ok {
		return namespace, name
	}
	return "", h.key
}

// plain is the entry of an object that has changed recently.
type plain struct {
	head
	object *event.Object
}

func (p *plain) load() *event.Object       { return p.object }
func (p *plain) read() *event.Object       { return p.object }
func (p *plain) home() string              { return p.object.Home() }
func (p *plain) size() int                 { return p.object.Size() }
func (p *plain) with(values *values) entry { return &plain{head{p.key, values}, p.object} }

// compressed is the entry of an object at rest, see [resting].
type compressed struct {
	head
	by   *dictionary
	data string // see dictionary.compress
}

func (c *compressed) load() *event.Object {
	o, err := c.by.decompress(c.data, nil)
	if err != nil {
		panic(err) //nolint:forbidigo // dictionary.compress has decompressed the same data
	}
	return o
}

func (c *compressed) read() *event.Object { return c.by.recent.of(c) }

func (c *compressed) home() string {
	if namespace, _ := c.names(); namespace != "" {
		return namespace
	}
	return c.load().Home()
}

func (c *compressed) size() int { return len(c.data) + int(unsafe.Sizeof(*c)-unsafe.Sizeof(c.head)) }

func (c *compressed) with(values *values) entry {
	return &compressed{head{c.key, values}, c.by, c.data}
}

// isPlain reports whether an entry, which may be nil, is not compressed.
func isPlain(e entry) bool { _, ok := e.(*plain); return ok }

// sameObject reports whether two entries contain the same object in the same form.
func sameObject(a, b entry) bool {
	switch a := a.(type) {
	case *plain:
		b, ok := b.(*plain)
		return ok && a.object == b.object
	case *compressed:
		b, ok := b.(*compressed)
		return ok && a.by == b.by && a.data == b.data
	}
	return false
}

// objectOf returns the object of an entry, or nil if there is no entry.
func objectOf(e entry) *event.Object {
	if e == nil {
		return nil
	}
	return e.load()
}

// collection collects the objects of entries under the lock of a view. It decompresses them after
// that, so that no writer waits for it.
type collection struct {
	found   []*event.Object
	resting []*compressed
}

func (c *collection) add(e entry) {
	switch e := e.(type) {
	case *plain:
		c.found = append(c.found, e.object)
	case *compressed:
		c.resting = append(c.resting, e)
	}
}

// objects returns all objects.
func (c *collection) objects() []*event.Object {
	for _, e := range c.resting {
		c.found = append(c.found, e.read())
	}
	return c.found
}
