package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Frames decodes the events of a watch response: {"type":"ADDED","object":{…}}, one after the
// other, keys in any order, with or without newlines between or within them.
type Frames struct {
	in      *Stream
	format  *Format
	objects *Decoder
	lines   bool   // an event ended with a newline
	ahead   *ahead // nil: the events are decoded when they are asked for
}

// NewFrames returns a decoder of the events in the stream in.
func NewFrames(format *Format, resource *event.Resource, in *Stream) *Frames {
	f := &Frames{in: in, format: format, objects: NewDecoder(format, resource, "object")}
	f.objects.finder.Find(idType, "type")
	f.objects.finder.Find(idObject, "object")
	return f
}

// Next returns the next event of an object that is kept. An *[ObjectError] concerns that event
// alone, and has the event's type if it is readable; any other error ends the stream. io.EOF is the
// regular end.
func (f *Frames) Next() (watch.Event, error) {
	for {
		e, err := f.next()
		if !f.objects.leaves(err) {
			return e, err
		}
	}
}

// Ahead makes f read and decode initial events on all cores before they are asked for, until Calm.
// It is called before Next. A single event would be held back for the next ones, so Calm is called
// at the bookmark that ends the initial events; from there on no event waits.
func (f *Frames) Ahead() {
	if severalCores() {
		f.ahead = inAhead(f.in, lineSplitter(), func() func(*block) { return NewFrames(f.format, f.objects.resource, nil).block })
	}
}

// Calm ends the effect of Ahead for the events that were not read yet.
func (f *Frames) Calm() {
	if f.ahead != nil {
		f.ahead.halt()
	}
}

// Close waits for all goroutines. The body was closed before, so that no read waits.
func (f *Frames) Close() {
	if f.ahead != nil {
		f.ahead.close()
	}
}

// block decodes a block of whole events.
func (f *Frames) block(b *block) {
	text := view(b.text)
	for b.left = skipSpace(text, 0); b.left < len(text); b.left = skipSpace(text, b.left) {
		e, n, err := f.decode(text[b.left:])
		if n == 0 {
			if n = extentOf(b.text[b.left:]); n == 0 {
				return
			}
			e, err = f.decodeWhole(text[b.left : b.left+n])
		}
		b.results = append(b.results, result{e, err})
		b.left += n
	}
}

func (f *Frames) next() (watch.Event, error) {
	if f.ahead != nil && !f.ahead.over {
		if r, ok := f.ahead.next(); ok {
			return r.event, r.err
		}
		f.in = f.ahead.rest()
	}
	if _, err := f.in.peek(); err != nil {
		return watch.Event{}, err
	}
	// The API server ends each event with a newline. If the text up to there is an event, decoding
	// is done; otherwise, for whatever reason, the slow path finds the extent of the event.
	if line, ok := f.line(); ok {
		if e, n, err := f.decode(line); n > 0 {
			f.lines = true
			f.in.advance(n)
			return e, err
		}
	}
	text, err := f.in.Text()
	if errors.Is(err, errTooBig) {
		return f.broken(text, err)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return watch.Event{}, err
	}
	e, err := f.decodeWhole(text)
	f.in.advance(len(text))
	f.lines = f.lines || strings.HasPrefix(f.in.unread(), "\n")
	return e, err
}

// decodeWhole decodes a text that is one whole value.
func (f *Frames) decodeWhole(text string) (watch.Event, error) {
	e, n, err := f.decode(text)
	if n == 0 {
		return f.broken(text, err)
	}
	return e, err
}

// line returns the next line. It waits for the rest of it if there were lines before: a search for
// the end of the event in each part of it costs more than all the rest.
func (f *Frames) line() (string, bool) {
	if f.lines {
		return f.in.wholeLine()
	}
	return f.in.line()
}

// decode decodes the event at the start of the text. n is its length, 0 if the text is no JSON or
// not complete.
func (f *Frames) decode(text string) (e watch.Event, n int, err error) {
	end, spans, err := f.objects.finder.Scan(text, 0)
	if err != nil {
		return e, 0, err
	}
	// The type may come behind the object, so both are found before either is read.
	var kind, object rawjson.Span
	for i := range spans {
		switch spans[i].ID {
		case idType:
			kind = spans[i]
		case idObject:
			object = spans[i]
		}
	}
	e.Type = eventType(text[kind.Start:kind.End])
	if e.Type == "" || object.End == 0 {
		return e, end, errNoEvent
	}
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		if f.objects.outside(text, spans) {
			return e, end, errOutside
		}
		o, err := f.objects.object(text, object.Start, object.End, spans)
		if err == nil && o.ResourceVersion() == "" { // the watch could not resume behind it
			err = errNoVersion
		}
		if err != nil {
			return e, end, Identify(text[object.Start:object.End], err)
		}
		e.Object = o
	case watch.Bookmark:
		e.Object = bookmark(rawjson.Value(text[object.Start:object.End]))
	case watch.Error:
		e.Object, err = status(text[object.Start:object.End])
	}
	return e, end, err
}

var (
	errNoVersion = errors.New("metadata.resourceVersion is missing")
	// errOutside says that the namespace of an object is not kept.
	errOutside = errors.New("in another namespace")
	errNoEvent = fmt.Errorf("%w: the type or the object of an event is missing or unknown", ErrNotWatch)
	// ErrNotWatch says that a response is not a stream of watch events.
	ErrNotWatch = errors.New("the API server sent something that is not a watch (does a proxy before it ask for a login?)")
)

// broken describes an event that cannot be read, so that the watch can continue behind it.
func (f *Frames) broken(text string, reason error) (watch.Event, error) {
	v := rawjson.Value(text)
	e := watch.Event{Type: eventType(string(v.Get("type")))}
	if v.Kind() != rawjson.Object || e.Type == "" && v.Get("object") == "" {
		return e, fmt.Errorf("%w: %w", ErrNotWatch, reason)
	}
	return e, Identify(string(v.Get("object")), reason)
}

func eventType(quoted string) watch.EventType {
	switch quoted {
	case `"ADDED"`:
		return watch.Added
	case `"MODIFIED"`:
		return watch.Modified
	case `"DELETED"`:
		return watch.Deleted
	case `"BOOKMARK"`:
		return watch.Bookmark
	case `"ERROR"`:
		return watch.Error
	}
	return ""
}

// bookmark keeps the fields that the Reflector reads of a bookmark.
func bookmark(object rawjson.Value) *metav1.PartialObjectMetadata {
	metadata := object.Get("metadata")
	b := &metav1.PartialObjectMetadata{}
	b.ResourceVersion = string([]byte(metadata.Get("resourceVersion").Str()))
	if metadata.Path("annotations", metav1.InitialEventsAnnotationKey).Str() == "true" {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return b
}

// status decodes the reason for which the API server ends the watch.
func status(text string) (*metav1.Status, error) {
	s := &metav1.Status{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("%w: an error that is no Status", ErrNotWatch)
	}
	return s, nil
}

// MaxObject is the size in bytes beyond which an object is skipped.
const MaxObject = 16 << 20

// Format is the form of the objects in responses and the selection of the fields that are kept. The
// zero Format keeps whole objects.
type Format struct {
	// MetadataOnly: objects come as PartialObjectMetadata.
	MetadataOnly bool
	// Drop has the paths that are removed from every object, as keys. A path that meets a list
	// continues in every element.
	Drop [][]string
	// Keep has the only fields that are kept, after those of Drop were removed; nil: all are.
	Keep *rawjson.Selection
	// Annotations are the only annotations that are kept; nil: all are.
	Annotations []string
	// Within reports whether the objects in a namespace are kept; nil: all are.
	Within func(namespace string) bool
}
