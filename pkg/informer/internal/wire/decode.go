package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Identifiers of the values that a decoder extracts from a text.
const (
	idType = iota // of a watch event
	idObject
	idAPIVersion
	idKind
	idNamespace
	idSpec
	idStatus
	idCut
)

var errNotUTF8 = errors.New("not UTF-8")

// ObjectError says that an object could not be read and was skipped. It names the object as far as
// its identity is readable, and never quotes it.
type ObjectError struct {
	Key          event.Key
	UID, Version string
	Reason       error
	labels       string // JSON; set only if the object is nested too deeply
}

// Error names the object and the reason.
func (e *ObjectError) Error() string {
	if e.Key.Name == "" {
		return e.Reason.Error()
	}
	return e.Key.String() + ": " + e.Reason.Error()
}

// Unwrap returns the reason.
func (e *ObjectError) Unwrap() error { return e.Reason }

// IsObjectError reports whether an error is about one object alone.
func IsObjectError(err error) bool {
	var bad *ObjectError
	return errors.As(err, &bad)
}

// Placeholder stands for an object that could not be read but has a readable identity: the object
// exists, so it must not be taken for deleted.
type Placeholder struct{ *event.Object }

// DeepCopyObject implements runtime.Object.
func (p Placeholder) DeepCopyObject() runtime.Object { return p }

// Placeholder returns nil if too little of the identity is known.
func (e *ObjectError) Placeholder(resource *event.Resource) runtime.Object {
	if e.Key.Name == "" || e.Version == "" {
		return nil
	}
	o, err := event.ParseObject(resource, e.identity().JSON())
	if err != nil {
		return nil
	}
	return Placeholder{o}
}

func (e *ObjectError) identity() *rawjson.Identity {
	return &rawjson.Identity{Name: e.Key.Name, Namespace: e.Key.Namespace, UID: e.UID, ResourceVersion: e.Version}
}

// IdentityOf returns o reduced to its identity.
func IdentityOf(o *event.Object) *event.Object {
	id := rawjson.Identity{
		APIVersion: o.Raw().Get("apiVersion").Str(), Kind: o.Raw().Get("kind").Str(),
		Name: o.Key().Name, Namespace: o.Key().Namespace, UID: o.UID(), ResourceVersion: o.ResourceVersion(),
	}
	if short, err := event.ParseObject(o.Resource(), id.JSON()); err == nil {
		return short
	}
	return o
}

// Decoder makes objects of texts: it checks a text once, removes the fields that the watch does not
// keep and copies the rest. It is for one goroutine at a time.
type Decoder struct {
	resource *event.Resource
	finder   *rawjson.Finder
	// rename: the received kind is that of the representation (PartialObjectMetadata), and is
	// replaced by the real one.
	rename bool
	within func(namespace string) bool // nil: objects in all namespaces are kept
	keep   *rawjson.Selection          // nil: all fields are kept
	// joined and selected are the buffers of select.
	joined, selected []byte
	cuts             []rawjson.Span
	spec, status     int // the offsets of the object's spec and status; -1: it has none
	pieces           []string
}

// NewDecoder returns a decoder for objects that are the value of the keys below in a text.
func NewDecoder(format *Format, resource *event.Resource, below ...string) *Decoder {
	d := &Decoder{resource: resource, finder: rawjson.NewFinder(), rename: format.MetadataOnly, within: format.Within, keep: format.Keep}
	at := func(keys ...string) []string { return append(below[:len(below):len(below)], keys...) }
	d.finder.Find(idAPIVersion, at("apiVersion")...)
	d.finder.Find(idKind, at("kind")...)
	if format.MetadataOnly { // some servers send the rest although it was not requested
		d.finder.SkipOthers(idCut, []string{"metadata"}, below...)
	} else {
		d.finder.Find(idSpec, at("spec")...)
		d.finder.Find(idStatus, at("status")...)
	}
	if format.Within != nil {
		d.finder.Find(idNamespace, at("metadata", "namespace")...)
	}
	if format.Annotations != nil {
		d.finder.SkipOthers(idCut, format.Annotations, at("metadata", "annotations")...)
	}
	for _, keys := range format.Drop {
		d.finder.Skip(idCut, at(keys...)...)
	}
	return d
}

// Keep makes an object of the text of a whole object, reduced to the format. The error never quotes
// the text.
func (d *Decoder) Keep(text string) (*event.Object, error) {
	text = string(rawjson.Trim(text))
	if d.rename {
		metadata := rawjson.Value(text).Get("metadata")
		if metadata == "" {
			return nil, event.ErrNoIdentity
		}
		text = `{"metadata":` + string(metadata) + `}`
	}
	end, spans, err := d.finder.Scan(text, 0)
	if err != nil {
		return nil, err
	}
	return d.object(text, 0, end, spans)
}

// outside reports whether the namespace of an object is not kept. spans are the parts that the
// finder found in the object.
func (d *Decoder) outside(src string, spans []rawjson.Span) bool {
	if d.within == nil {
		return false
	}
	for i := range spans {
		if spans[i].ID == idNamespace {
			return !d.within(rawjson.Value(src[spans[i].Start:spans[i].End]).Str())
		}
	}
	return !d.within("")
}

// leaves reports whether an error concerns an object in a namespace that is not kept.
func (d *Decoder) leaves(err error) bool {
	if d.within == nil || err == nil {
		return false
	}
	var bad *ObjectError
	return errors.Is(err, errOutside) || errors.As(err, &bad) && bad.Key.Name != "" && !d.within(bad.Key.Namespace)
}

// object makes an object of src[start:end]; spans are the parts that the finder found in it. The
// text is copied.
func (d *Decoder) object(src string, start, end int, spans []rawjson.Span) (*event.Object, error) {
	apiVersion, kind := d.split(spans)
	if src[start] != '{' {
		return nil, event.ErrNoIdentity
	}
	// Items of a list have no apiVersion and kind of their own.
	front := ""
	if !apiVersion || !kind || d.rename {
		front = d.front(!apiVersion || d.rename, !kind || d.rename)
	}
	// The text is validated and measured first, so that the copy is the only allocation.
	d.pieces = rawjson.Cut(d.pieces[:0], src, start, end, d.cuts)
	size := len(front)
	for _, piece := range d.pieces {
		size += len(piece)
		if !d.finder.ASCII() && !utf8.ValidString(piece) {
			return nil, errNotUTF8
		}
	}
	if d.keep != nil {
		return event.ParseObject(d.resource, d.selection(front))
	}
	var b strings.Builder
	b.Grow(size)
	for i, piece := range d.pieces {
		if i == 0 && front != "" {
			b.WriteString(front)
			piece = piece[1:]
		}
		b.WriteString(piece)
	}
	return event.ParseIndexed(d.resource, b.String(), d.place(d.spec, b.Len(), end), d.place(d.status, b.Len(), end))
}

// selection returns a copy of the kept fields of the object in d.pieces, whose text begins with
// front; empty: with the first piece.
func (d *Decoder) selection(front string) string {
	text := d.pieces[0]
	if len(d.pieces) > 1 || front != "" {
		d.joined = append(d.joined[:0], front...)
		for i, piece := range d.pieces {
			if i == 0 && front != "" {
				piece = piece[1:]
			}
			d.joined = append(d.joined, piece...)
		}
		text = view(d.joined)
	}
	d.selected = d.keep.Append(d.selected[:0], text)
	kept := string(d.selected)
	if cap(d.joined) > bufferSize { // a big object has passed
		d.joined, d.selected = nil, nil
	}
	return kept
}

// place returns the offset in the kept text, which has a size, of a value at the offset start of
// the received text, which ended at an offset; 0: unknown, because the value was cut, or a part of
// the text behind its begin.
func (d *Decoder) place(start, size, end int) uint32 {
	if behind := end - start; start >= 0 && behind <= len(d.pieces[len(d.pieces)-1]) && size <= math.MaxUint32 {
		return uint32(size - behind) //nolint:gosec // checked
	}
	return 0
}

// split separates the spans to remove, and reports whether apiVersion and kind are present.
func (d *Decoder) split(spans []rawjson.Span) (apiVersion, kind bool) {
	d.cuts, d.spec, d.status = d.cuts[:0], -1, -1
	for _, span := range spans {
		switch span.ID {
		case idAPIVersion:
			apiVersion = true
		case idKind:
			kind = true
		case idCut:
			d.cuts = append(d.cuts, span)
			continue
		case idSpec:
			d.spec = span.Start
			continue
		case idStatus:
			d.status = span.Start
			continue
		default:
			continue
		}
		// Those of metadata alone name another kind, and front has the right ones.
		if d.rename {
			d.cuts = append(d.cuts, span)
		}
	}
	return apiVersion, kind
}

// front returns the start of an object's text with the members that the items of a list lack, in
// the order in which the API server writes them in a watch: the text of an object must not depend
// on the kind of response, because texts are compared where resourceVersions prove nothing (a
// restored backup issues them again).
func (d *Decoder) front(apiVersion, kind bool) string {
	front := "{"
	if kind && d.resource.Kind != "" {
		front += fmt.Sprintf(`"kind":%q,`, d.resource.Kind)
	}
	if apiVersion {
		front += fmt.Sprintf(`"apiVersion":%q,`, d.resource.GroupVersion().String())
	}
	return front
}

// Identify describes an object that could not be read from the readable parts of its text. The text
// may be broken or truncated.
func Identify(text string, reason error) *ObjectError {
	e := &ObjectError{Reason: reason}
	if isTooDeep(reason) {
		e.labels = labelsIn(text)
	}
	for name, value := range rawjson.Value(text).Get("metadata").Fields() {
		field := map[string]*string{
			"name": &e.Key.Name, "namespace": &e.Key.Namespace, "uid": &e.UID, "resourceVersion": &e.Version,
		}[name]
		if field != nil && *field == "" && utf8.ValidString(string(value)) {
			*field = strings.Clone(value.Str())
		}
	}
	return e
}

// Unreadable is the annotation, with the reason, of an object that is passed on as its identity and
// labels only. It replaces all annotations of the object.
const Unreadable = "deltarouter.io/unreadable"

// isTooDeep reports whether the only fault of an object is its depth. The API server accepts 10,000
// levels, so the author of a custom resource could otherwise hide it from all rules. Objects with
// more levels than our limit are not read, because comparing two values takes time in proportion to
// their depth times their size.
func isTooDeep(err error) bool {
	var bad *rawjson.SyntaxError
	return errors.As(err, &bad) && bad.TooDeep()
}

// labelsIn returns the labels of an object that cannot be read as a whole; empty: they are not
// readable either, or there are none.
func labelsIn(text string) string {
	labels := rawjson.Value(text).Path("metadata", "labels")
	if labels.Kind() != rawjson.Object || rawjson.Check(string(labels)) != nil {
		return ""
	}
	return strings.Clone(string(labels))
}

// Reduced returns the identity and labels of an object that is nested too deeply; nil: it is not,
// or too little of its identity is known.
func (e *ObjectError) Reduced(format *Format, resource *event.Resource) *event.Object {
	if !isTooDeep(e.Reason) || e.Key.Name == "" || e.UID == "" || e.Version == "" {
		return nil
	}
	id := e.identity()
	id.APIVersion, id.Kind = resource.GroupVersion().String(), resource.Kind
	labels := ""
	if e.labels != "" {
		labels = `,"labels":` + e.labels
	}
	// The fields that the source drops are removed as from other objects; our annotation stays.
	d := NewDecoder(format, resource)
	text := strings.TrimSuffix(id.JSON(), "}}") + labels + "}}"
	end, spans, err := d.finder.Scan(text, 0)
	if err != nil {
		return nil
	}
	o, err := d.object(text, 0, end, spans)
	if err != nil {
		return nil
	}
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(string(o.JSON()), "}}"))
	b.WriteString(`,"annotations":{"` + Unreadable + `":`)
	b.WriteString(rawjson.Quote(fmt.Sprintf("nested deeper than %d levels", rawjson.MaxDepth)))
	b.WriteString("}}}")
	if o, err = event.ParseObject(resource, b.String()); err != nil {
		return nil
	}
	return o
}
