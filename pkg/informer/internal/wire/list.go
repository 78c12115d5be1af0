package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Listing decodes a page of a list while it arrives:
// {"kind":"PodList","metadata":{…},"items":[{…},…]}.
type Listing struct {
	// Known may return an equal object that is in memory already; nil: none.
	Known func(*event.Object) *event.Object

	in      *Stream
	format  *Format
	objects *Decoder
	bad     func(*ObjectError) runtime.Object
	list    *internalversion.List
	long    int // see longList
}

// NewListing returns a decoder of the page in the stream in. bad is called for each item that could
// not be read, and may return a [Placeholder].
func NewListing(format *Format, resource *event.Resource, in *Stream, bad func(*ObjectError) runtime.Object) *Listing {
	return &Listing{in: in, format: format, objects: NewDecoder(format, resource), bad: bad, list: &internalversion.List{}, long: longList}
}

// Read returns the page. Its items are *[event.Object] or placeholders.
func (l *Listing) Read() (*internalversion.List, error) {
	err := l.members('{', '}', func() error {
		key, err := l.token()
		if err != nil {
			return err
		}
		if err := l.expect(':'); err != nil {
			return err
		}
		return l.member(rawjson.Value(key).Str())
	})
	if err == nil && l.list.Items == nil {
		err = ErrNoList
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	return l.list, nil
}

// ErrNoList says that a response is not a list.
var ErrNoList = errors.New("the API server sent something that is not a list (does a proxy before it ask for a login?)")

func (l *Listing) member(key string) error {
	if c, err := l.in.peek(); err != nil || key == "items" && c == '[' {
		if err != nil {
			return err
		}
		l.list.Items = []runtime.Object{}
		return l.items()
	}
	text, err := l.in.Text()
	if err != nil {
		return err
	}
	switch key {
	case "metadata":
		if err = json.Unmarshal([]byte(text), &l.list.ListMeta); err != nil {
			err = fmt.Errorf("%w: bad metadata", ErrNoList)
		}
	case "items": // null: an empty list of Go
		l.list.Items = []runtime.Object{}
	}
	l.in.advance(len(text))
	return err
}

// items reads the items of a list, on all cores if it is long.
func (l *Listing) items() error {
	if err := l.expect('['); err != nil {
		return err
	}
	if severalCores() && l.in.fill(l.long) {
		return l.itemsAhead()
	}
	return l.elements(true, ']', l.item)
}

func (l *Listing) itemsAhead() (err error) {
	a := inAhead(l.in, itemSplitter(), func() func(*block) { return NewListing(l.format, l.objects.resource, nil, nil).block })
	defer func() {
		if err != nil {
			a.in.close() // the splitter may be reading
		}
		a.close()
	}()
	for r, ok := a.next(); ok; r, ok = a.next() {
		l.take(r)
	}
	l.in = a.rest()
	return l.elements(!a.begun, ']', l.item)
}

// longList is the number of bytes from which on a list is decoded on all cores.
const longList = bufferSize / 2

// members reads the elements between two brackets, separated by commas.
func (l *Listing) members(open, closing byte, one func() error) error {
	if err := l.expect(open); err != nil {
		return err
	}
	return l.elements(true, closing, one)
}

// elements reads the elements up to a closing bracket, separated by commas. first: the next element
// is the first one.
func (l *Listing) elements(first bool, closing byte, one func() error) error {
	for ; ; first = false {
		c, err := l.in.peek()
		if err != nil {
			return err
		}
		if c == closing {
			l.in.advance(1)
			return nil
		}
		if !first {
			if err := l.expect(','); err != nil {
				return err
			}
			if _, err := l.in.peek(); err != nil {
				return err
			}
		}
		if err := one(); err != nil {
			return err
		}
	}
}

func (l *Listing) expect(want byte) error {
	c, err := l.in.peek()
	if err != nil {
		return err
	}
	if c != want {
		return fmt.Errorf("%w: no %q where there should be one", ErrNoList, want)
	}
	l.in.advance(1)
	return nil
}

// token consumes a value and returns a copy of it.
func (l *Listing) token() (string, error) {
	text, err := l.in.Text()
	if err != nil {
		return "", err
	}
	text = string([]byte(text))
	l.in.advance(len(text))
	return text, nil
}

// item reads one item. The fast path tries whether the buffer holds the whole item.
func (l *Listing) item() error {
	r, n, err := l.decode(l.in.unread())
	if err != nil {
		text, err := l.in.Text()
		if errors.Is(err, errTooBig) {
			l.take(result{err: Identify(text, err)})
			return nil
		}
		if err != nil {
			return err
		}
		r, n = l.decodeWhole(text)
	}
	l.take(r)
	l.in.advance(n)
	return nil
}

// decode decodes the item at the start of the text. The result is empty if the item is not kept. n
// is its length. The error says that the text is no JSON or not complete.
func (l *Listing) decode(text string) (r result, n int, err error) {
	end, spans, err := l.objects.finder.Scan(text, 0)
	if err != nil || l.objects.outside(text, spans) {
		return r, end, err
	}
	o, err := l.objects.object(text, 0, end, spans)
	if err != nil {
		return result{err: Identify(text[:end], err)}, end, nil
	}
	r.event.Object = o
	return r, end, nil
}

// decodeWhole is decode for a text that is one whole item.
func (l *Listing) decodeWhole(text string) (r result, n int) {
	r, n, err := l.decode(text)
	if err != nil {
		return result{err: Identify(text, err)}, len(text)
	}
	return r, n
}

// block decodes a block of whole items.
func (l *Listing) block(b *block) {
	text := view(b.text)
	for b.left = 0; b.left < len(text); {
		at := skipSpace(text, b.left)
		if at < len(text) && text[at] == ',' {
			at = skipSpace(text, at+1)
		}
		r, n, err := l.decode(text[at:])
		if err != nil {
			if n = extentOf(b.text[at:]); n == 0 {
				return
			}
			r, n = l.decodeWhole(text[at : at+n])
		}
		if r.event.Object != nil || r.err != nil {
			b.results = append(b.results, r)
		}
		b.left = at + n
	}
}

// take appends an item to the list.
func (l *Listing) take(r result) {
	if bad, ok := errors.AsType[*ObjectError](r.err); ok {
		l.leaveOut(bad)
	} else if o, ok := r.event.Object.(*event.Object); ok {
		if l.Known != nil {
			o = l.Known(o)
		}
		l.list.Items = append(l.list.Items, o)
	}
}

func (l *Listing) leaveOut(e *ObjectError) {
	if l.objects.leaves(e) {
		return
	}
	if o := l.bad(e); o != nil {
		l.list.Items = append(l.list.Items, o)
	}
}
