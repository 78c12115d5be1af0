package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// What a decoder looks for in a text.
const (
	idType = iota // of a watch event
	idObject
	idAPIVersion
	idKind
	idCut
)

var errNotUTF8 = errors.New("not UTF-8")

// objectError says that an object could not be read and was left out. It names the object as far as that can be made out, and
// never quotes it.
type objectError struct {
	key          event.Key
	uid, version string
	reason       error
}

// Error names the object and the reason.
func (e *objectError) Error() string {
	if e.key.Name == "" {
		return e.reason.Error()
	}
	return e.key.String() + ": " + e.reason.Error()
}

// Unwrap returns the reason.
func (e *objectError) Unwrap() error { return e.reason }

func isObjectError(err error) bool {
	var bad *objectError
	return errors.As(err, &bad)
}

// placeholder stands for an object that could not be read but whose identity could: it is there, so it is not to be taken for deleted.
type placeholder struct{ *event.Object }

// DeepCopyObject implements runtime.Object.
func (p placeholder) DeepCopyObject() runtime.Object { return p }

// placeholder returns nil if too little of the identity is known.
func (e *objectError) placeholder(resource *event.Resource) runtime.Object {
	if e.key.Name == "" || e.version == "" {
		return nil
	}
	o, err := event.ParseObject(resource, identityText("", "", e.key, e.uid, e.version))
	if err != nil {
		return nil
	}
	return placeholder{o}
}

// identityText returns the text of an object that consists of its identity.
func identityText(apiVersion, kind string, key event.Key, uid, version string) string {
	var b strings.Builder
	b.Grow(96 + len(apiVersion) + len(kind) + len(key.Namespace) + len(key.Name) + len(uid) + len(version))
	sep := byte('{')
	field := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteByte(sep)
		sep = ','
		b.WriteByte('"')
		b.WriteString(name)
		b.WriteString(`":`)
		writeString(&b, value)
	}
	field("apiVersion", apiVersion)
	field("kind", kind)
	b.WriteByte(sep)
	b.WriteString(`"metadata":`)
	sep = '{'
	field("name", key.Name)
	field("namespace", key.Namespace)
	field("uid", uid)
	field("resourceVersion", version)
	b.WriteString("}}")
	return b.String()
}

// writeString writes s as a JSON string.
func writeString(b *strings.Builder, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always can be
			b.Write(quoted)
			return
		}
	}
	b.WriteByte('"')
	b.WriteString(s)
	b.WriteByte('"')
}

// identityOf returns o reduced to its identity.
func identityOf(o *event.Object) *event.Object {
	text := identityText(o.Raw().Get("apiVersion").Str(), o.Raw().Get("kind").Str(), o.Key(), o.UID(), o.ResourceVersion())
	if short, err := event.ParseObject(o.Resource(), text); err == nil {
		return short
	}
	return o
}

// decoder makes objects of texts: it checks a text once, cuts out what the watch does not keep and copies the rest. It is for one
// goroutine at a time.
type decoder struct {
	resource *event.Resource
	finder   *rawjson.Finder
	// rename: the kind on the wire is that of the representation (PartialObjectMetadata), and the real one replaces it.
	rename bool
	cuts   []rawjson.Span
	pieces []string
}

// newDecoder returns a decoder for objects that lie below the given keys of a text.
func newDecoder(spec *Spec, resource *event.Resource, below ...string) *decoder {
	d := &decoder{resource: resource, finder: rawjson.NewFinder(), rename: spec.metadataOnly()}
	at := func(keys ...string) []string { return append(below[:len(below):len(below)], keys...) }
	d.finder.Find(idAPIVersion, at("apiVersion")...)
	d.finder.Find(idKind, at("kind")...)
	for _, keys := range spec.dropped() {
		d.finder.Skip(idCut, at(keys...)...)
	}
	return d
}

// Keep makes an object of its JSON text as a watch of this Spec would keep it: without what it drops. The error never quotes the text.
func Keep(spec Spec, cluster, text string) (*event.Object, error) {
	raw := rawjson.Trim(text)
	if err := rawjson.Check(text); err != nil {
		return nil, err
	}
	resource := &event.Resource{GroupVersionResource: spec.Resource, Cluster: cluster, Kind: raw.Get("kind").Str()}
	if spec.metadataOnly() {
		raw = rawjson.Value(`{"metadata":` + string(raw.Get("metadata")) + `}`)
		if raw == `{"metadata":}` {
			return nil, event.ErrNoIdentity
		}
	}
	d := newDecoder(&spec, resource)
	end, spans, err := d.finder.Scan(string(raw), 0)
	if err != nil {
		return nil, err
	}
	return d.object(string(raw), 0, end, spans)
}

// object makes an object of src[start:end], which the finder has scanned and found the spans in. The text is copied.
func (d *decoder) object(src string, start, end int, spans []rawjson.Span) (*event.Object, error) {
	apiVersion, kind := d.split(spans)
	if src[start] != '{' {
		return nil, event.ErrNoIdentity
	}
	front := ""
	if !apiVersion || !kind || d.rename {
		front = d.front(!apiVersion || d.rename, !kind || d.rename)
	}
	d.pieces = rawjson.Cut(d.pieces[:0], src, start, end, d.cuts)
	size := len(front)
	for _, piece := range d.pieces {
		size += len(piece)
		if !d.finder.ASCII() && !utf8.ValidString(piece) {
			return nil, errNotUTF8
		}
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
	return event.ParseObject(d.resource, b.String())
}

// split sorts the spans: which are to be cut, and are apiVersion and kind there?
func (d *decoder) split(spans []rawjson.Span) (apiVersion, kind bool) {
	d.cuts = d.cuts[:0]
	for _, span := range spans {
		switch span.ID {
		case idAPIVersion:
			apiVersion = true
		case idKind:
			kind = true
		case idCut:
			d.cuts = append(d.cuts, span)
			continue
		default:
			continue
		}
		if d.rename {
			d.cuts = append(d.cuts, span)
		}
	}
	return apiVersion, kind
}

// front returns the beginning of an object's text with the members that the items of a list lack, in the order in which the API server
// writes them in a watch: where versions are no proof (see Watch.differs) the text of an object must not depend on how it came.
func (d *decoder) front(apiVersion, kind bool) string {
	front := "{"
	if kind && d.resource.Kind != "" {
		front += fmt.Sprintf(`"kind":%q,`, d.resource.Kind)
	}
	if apiVersion {
		front += fmt.Sprintf(`"apiVersion":%q,`, d.resource.GroupVersion().String())
	}
	return front
}

// failed describes an object that could not be read, from whatever of its text can be made out. The text may be broken or cut off.
func failed(text string, reason error) *objectError {
	e := &objectError{reason: reason}
	for name, value := range rawjson.Value(text).Get("metadata").Fields() {
		field := map[string]*string{
			"name": &e.key.Name, "namespace": &e.key.Namespace, "uid": &e.uid, "resourceVersion": &e.version,
		}[name]
		if field != nil && *field == "" && utf8.ValidString(string(value)) {
			*field = strings.Clone(value.Str())
		}
	}
	return e
}
