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
	objects *Decoder
	bad     func(*ObjectError) runtime.Object
	list    *internalversion.List
}

// NewListing returns a decoder of the page in the stream in. bad is called for each item that could
// not be read, and may return a [Placeholder].
func NewListing(format *Format, resource *event.Resource, in *Stream, bad func(*ObjectError) runtime.Object) *Listing {
	return &Listing{in: in, objects: NewDecoder(format, resource), bad: bad, list: &internalversion.List{}}
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
var ErrNoList = errors.New("the API server sent something that is not a list")

func (l *Listing) member(key string) error {
	if c, err := l.in.peek(); err != nil || key == "items" && c == '[' {
		if err != nil {
			return err
		}
		l.list.Items = []runtime.Object{}
		return l.members('[', ']', l.item)
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

// members reads the elements between two brackets, separated by commas.
func (l *Listing) members(open, closing byte, one func() error) error {
	if err := l.expect(open); err != nil {
		return err
	}
	for first := true; ; first = false {
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
	text := l.in.unread()
	end, spans, err := l.objects.finder.Scan(text, 0)
	if err != nil {
		text, err = l.in.Text()
		if errors.Is(err, errTooBig) {
			l.leaveOut(Identify(text, err))
			return nil
		}
		if err != nil {
			return err
		}
		if end, spans, err = l.objects.finder.Scan(text, 0); err != nil {
			l.leaveOut(Identify(text, err))
			l.in.advance(len(text))
			return nil
		}
	}
	if l.objects.outside(text, spans) {
		l.in.advance(end)
		return nil
	}
	o, err := l.objects.object(text, 0, end, spans)
	if err != nil {
		l.leaveOut(Identify(text[:end], err))
	} else {
		if l.Known != nil {
			o = l.Known(o)
		}
		l.list.Items = append(l.list.Items, o)
	}
	l.in.advance(end)
	return nil
}

func (l *Listing) leaveOut(e *ObjectError) {
	if l.objects.leaves(e) {
		return
	}
	if o := l.bad(e); o != nil {
		l.list.Items = append(l.list.Items, o)
	}
}
