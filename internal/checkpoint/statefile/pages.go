package statefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"sync/atomic"
)

// bbolt trusts its pages: a damaged one makes it panic, overflow the stack or read beyond its
// memory map, and some of these faults cannot be caught. So the file is walked here first, with
// plain reads, and bbolt opens it only if all pages are intact: each is inside the file and used
// once, its keys ascend and match the keys in its branch page, and none is both in use and free.
//
// The layout is that of bbolt's format 2, in the byte order of the machine. A page begins with id
// (8 bytes), flags (2), count (2) and overflow (4): the number of pages that continue it.
const (
	pageHeader = 16
	// ElementSize is the size of a key and its place on a page beside the value, without the key.
	ElementSize = 16
	// the value of a bucket: the page of its root (0: the page follows at once) and a sequence
	// number
	bucketSize = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01

	noFreelist = ^uint64(0)
	maxLevels  = 64
)

var order = binary.NativeEndian

// pages walks the pages of a file.
type pages struct {
	file     io.ReaderAt
	size     int64 // of the file
	pageSize int64
	meta     metaPage
	usage    *usage
	windows  []*window // one for each level of the walk
	codec    *Codec
	// visit is called with each value: in the order of the keys at the top and in the bucket meta,
	// in others concurrently.
	visit func(seed uint32, key, value []byte) error
	crew  []*pages // for the children of a page
	alone bool     // it is a member of a crew
}

// usage has the pages in use. It is safe for concurrent use.
type usage struct {
	seen []uint64     // one bit for each used page
	used atomic.Int64 // the number of pages with content, including the free list
}

// metaPage has the used fields of a meta page.
type metaPage struct{ root, freelist, high, tx uint64 }

// walk visits all values. fellBack: the newer of the two meta pages is damaged, and the file has
// the state of the transaction before it.
func (p *pages) walk() (fellBack bool, err error) {
	if fellBack, err = p.readMeta(); err != nil {
		return false, err
	}
	if p.meta.high < 3 || p.meta.high > uint64(p.size/p.pageSize) {
		return false, Corruptf("%d pages are in use, the file has %d", p.meta.high, p.size/p.pageSize)
	}
	p.usage = &usage{seen: make([]uint64, p.meta.high/64+1)}
	p.usage.seen[0] = 3 // the meta pages
	p.usage.used.Store(2)
	if err := p.bucket(p.meta.root, 0, 0); err != nil {
		return false, err
	}
	return fellBack, p.freelist()
}

func (p *pages) readMeta() (fellBack bool, err error) {
	first, size, err := p.metaAt(0)
	if err != nil {
		return false, err
	}
	if first == nil { // the page size is in the damaged page
		for size = 1 << 10; size <= 1<<16; size <<= 1 {
			second, claimed, err := p.metaAt(size)
			if err != nil {
				return false, err
			}
			if second != nil && claimed == size {
				p.meta, p.pageSize = *second, size
				return true, nil
			}
		}
		return false, Corruptf("both meta pages are invalid")
	}
	p.meta, p.pageSize = *first, size
	second, claimed, err := p.metaAt(size)
	if err != nil {
		return false, err
	}
	if second == nil || claimed != size {
		return true, nil
	}
	if second.tx > first.tx {
		p.meta = *second
	}
	return false, nil
}

// metaAt returns nil if there is no valid meta page at the offset.
func (p *pages) metaAt(offset int64) (*metaPage, int64, error) {
	var page [pageHeader + 64]byte
	if _, err := p.file.ReadAt(page[:], offset); errors.Is(err, io.EOF) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	// magic, version, page size, flags; root, its sequence; free list, first unused page,
	// transaction; checksum
	m := page[pageHeader:]
	sum := fnv.New64a()
	sum.Write(m[:56])
	size := int64(order.Uint32(m[8:]))
	if order.Uint32(m) != 0xED0CDAED || order.Uint32(m[4:]) != 2 || order.Uint64(m[56:]) != sum.Sum64() ||
		size < 1<<10 || size > 1<<16 || size&(size-1) != 0 {
		return nil, 0, nil
	}
	return &metaPage{order.Uint64(m[16:]), order.Uint64(m[32:]), order.Uint64(m[40:]), order.Uint64(m[48:])}, size, nil
}

// read returns the page with its continuation. The memory is valid until the next read of the same
// level.
func (p *pages) read(id uint64, level int) ([]byte, error) {
	if id < 2 || id >= p.meta.high {
		return nil, Corruptf("page %d does not exist", id)
	}
	for len(p.windows) <= level {
		p.windows = append(p.windows, &window{})
	}
	w := p.windows[level]
	page, err := w.page(p, id)
	if err != nil {
		return nil, err
	}
	overflow := uint64(order.Uint32(page[12:]))
	if order.Uint64(page) != id || overflow >= p.meta.high-id {
		return nil, Corruptf("page %d has another id", id)
	}
	for i := id; i <= id+overflow; i++ {
		if !p.use(i) {
			return nil, Corruptf("page %d is used twice", i)
		}
	}
	p.usage.used.Add(int64(overflow) + 1) //nolint:gosec // there are not more than the file has
	if overflow == 0 {
		return page, nil
	}
	return w.pages(p, id, overflow+1)
}

// use marks a page as used; false: it was marked already.
func (p *pages) use(id uint64) bool {
	bit := uint64(1) << (id % 64)
	return atomic.OrUint64(&p.usage.seen[id/64], bit)&bit == 0
}

// span is the range of keys of a page according to its branch page: the first key, and one beyond
// the last. nil: unknown.
type span struct{ first, end []byte }

func (p *pages) bucket(root uint64, seed uint32, level int) error {
	return p.tree(root, span{}, seed, level)
}

func (p *pages) tree(id uint64, within span, seed uint32, level int) error {
	if level >= maxLevels {
		return Corruptf("page %d is nested too deeply", id)
	}
	page, err := p.read(id, level)
	if err != nil {
		return err
	}
	if order.Uint16(page[8:]) == leafPage {
		return p.leaf(page, within, seed, level)
	}
	if order.Uint16(page[8:]) != branchPage {
		return Corruptf("page %d is neither branch nor leaf", id)
	}
	count := int(order.Uint16(page[10:]))
	if count == 0 {
		return Corruptf("branch page %d is empty", id)
	}
	return p.each(count, seed, func(p *pages, i int) error { return p.child(page, i, count, within, seed, level) })
}

// child walks the tree of an element of a branch page.
func (p *pages) child(page []byte, i, count int, within span, seed uint32, level int) (err error) {
	var last []byte
	if i > 0 {
		if last, _, err = branchElement(page, i-1, count); err != nil {
			return err
		}
	}
	key, child, err := branchElement(page, i, count)
	if err != nil {
		return err
	}
	if err := within.holds(last, key, i == 0); err != nil {
		return err
	}
	below := span{key, within.end}
	if i+1 < count {
		if below.end, _, err = branchElement(page, i+1, count); err != nil {
			return err
		}
	}
	return p.tree(child, below, seed, level+1)
}

// holds checks whether key may follow last on a page.
func (s span) holds(last, key []byte, first bool) error {
	switch {
	case first && s.first != nil && !bytes.Equal(key, s.first):
		return Corruptf("the first key of a page differs from the key in its branch page")
	case !first && bytes.Compare(last, key) >= 0:
		return Corruptf("the keys of a page are out of order")
	case s.end != nil && bytes.Compare(key, s.end) >= 0:
		return Corruptf("a page has keys beyond its range")
	}
	return nil
}

// branchElement: pos (4), size of the key (4), page (8).
func branchElement(page []byte, i, count int) (key []byte, child uint64, err error) {
	at := pageHeader + i*ElementSize
	if pageHeader+count*ElementSize > len(page) {
		return nil, 0, Corruptf("a page has more elements than room")
	}
	key, err = cut(page, at, count, order.Uint32(page[at:]), order.Uint32(page[at+4:]))
	return key, order.Uint64(page[at+8:]), err
}

// cut returns size bytes at pos bytes behind the element at the offset, which must be behind all
// elements.
func cut(page []byte, at, count int, pos, size uint32) ([]byte, error) {
	begin := int64(at) + int64(pos)
	if begin < int64(pageHeader+count*ElementSize) || begin+int64(size) > int64(len(page)) {
		return nil, Corruptf("an element lies outside its page")
	}
	return page[begin : begin+int64(size) : begin+int64(size)], nil
}

// leaf visits the values of a leaf page. An element: flags (4), pos (4), size of the key (4), size
// of the value (4).
func (p *pages) leaf(page []byte, within span, seed uint32, level int) error {
	count := int(order.Uint16(page[10:]))
	if pageHeader+count*ElementSize > len(page) {
		return Corruptf("a page has more elements than room")
	}
	if count == 0 && within.first != nil {
		return Corruptf("a page is empty")
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*ElementSize
		keySize, valueSize := order.Uint32(page[at+8:]), order.Uint32(page[at+12:])
		if keySize > 1<<15 || valueSize > 1<<31-2 {
			return Corruptf("an element is too large")
		}
		both, err := cut(page, at, count, order.Uint32(page[at+4:]), keySize+valueSize)
		if err != nil {
			return err
		}
		key, stored := both[:keySize:keySize], both[keySize:]
		if err := within.holds(last, key, i == 0); err != nil {
			return err
		}
		last = key
		if err := p.element(order.Uint32(page[at:]), key, stored, seed, level); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) element(flags uint32, key, stored []byte, seed uint32, level int) error {
	switch flags {
	case 0:
		return p.visit(seed, key, stored)
	case bucketFlag:
	default:
		return Corruptf("an element has flags %#x", flags)
	}
	if len(stored) < bucketSize {
		return Corruptf("a bucket has %d bytes", len(stored))
	}
	seed = p.codec.Seed(seed, string(key))
	if root := order.Uint64(stored); root != 0 {
		return p.bucket(root, seed, level+1)
	}
	inline := stored[bucketSize:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != leafPage || order.Uint32(inline[12:]) != 0 || level >= maxLevels {
		return Corruptf("the page inside a bucket is not a leaf")
	}
	return p.leaf(inline, span{}, seed, level+1)
}

// freelist checks that no free page is in use. The count precedes the ids if it is too large for
// the header.
func (p *pages) freelist() error {
	if p.meta.freelist == noFreelist {
		return nil
	}
	page, err := p.read(p.meta.freelist, 0)
	if err != nil {
		return err
	}
	count, ids := uint64(order.Uint16(page[10:])), page[pageHeader:]
	if order.Uint16(page[8:]) != freelistPage {
		return Corruptf("the page of the free list has another type")
	}
	if count == 0xFFFF {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return Corruptf("the free list has more pages than room")
	}
	for i := range count {
		id := order.Uint64(ids[i*8:])
		if id < 2 || id >= p.meta.high || !p.use(id) {
			return Corruptf("page %d is free and in use", id)
		}
	}
	return nil
}
