package fingerprint

import (
	"strconv"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Past is a former state of an object of which only the identity and perhaps fingerprints are
// known. It is immutable. The zero Past has no fingerprints.
type Past struct {
	key    *Key
	uid    string
	prints string
}

// PastOf returns the state with fingerprints of a key that [Key.ID] identifies. It has none if the
// key is another one, or the text is no fingerprints.
func (k *Key) PastOf(id, uid, prints string) *Past {
	if k == nil || id != k.id || rawjson.Check(prints) != nil || rawjson.Trim(prints).Kind() != rawjson.Object {
		return &Past{}
	}
	return &Past{k, uid, prints}
}

// IsUnknown reports whether there are no fingerprints.
func (p *Past) IsUnknown() bool { return p.key == nil }

// Prints returns the arguments of [Key.PastOf]; empty: there are no fingerprints.
func (p *Past) Prints() (id, uid, prints string) { return p.key.ID(), p.uid, p.prints }

// Recall returns the JSON text of the state, by its identity and a later state of the same object:
//
//   - A value with an equal hash is copied from the later state.
//   - A field that the state did not have is missing.
//   - A value that changed, or that the later state lacks, is a placeholder of its kind.
//   - Without fingerprints, each value of the later state is a placeholder, except for those that
//     never change; further fields of the state are not known.
//
// A placeholder differs from the value of now.
func (p *Past) Recall(identity, now rawjson.Value) string {
	r := &recaller{b: make([]byte, 0, len(identity)+len(now)+64)}
	prints := rawjson.Value(p.prints)
	if p.key != nil {
		r.hasher = p.key.hasher(p.uid)
	}
	r.b = append(r.b, '{')
	for _, name := range []string{"apiVersion", "kind"} {
		if v := now.Get(name); v != "" {
			r.member(name, v)
		}
	}
	metadata := now.Get("metadata")
	r.name("metadata")
	r.b = append(r.b, '{')
	for name, v := range identity.Get("metadata").Fields() {
		r.member(name, v)
	}
	if r.hasher == nil {
		r.unknownMetadata(metadata)
		r.b = append(r.b, '}')
		r.unknownRest(now)
	} else {
		r.within("metadata", func() { r.members(prints.Get("metadata"), metadata, false) })
		r.b = append(r.b, '}')
		r.rest(prints, now)
	}
	return string(append(r.b, '}'))
}

// recaller makes the text of one state. Without a hasher, nothing of it is known.
type recaller struct {
	*hasher

	b []byte
}

func (r *recaller) name(name string) {
	r.comma()
	r.b = append(rawjson.AppendString(r.b, name), ':')
}

func (r *recaller) comma() {
	if last := r.b[len(r.b)-1]; last != '{' && last != '[' {
		r.b = append(r.b, ',')
	}
}

func (r *recaller) member(name string, v rawjson.Value) {
	r.name(name)
	r.b = append(r.b, v...)
}

// fields returns the members of an object by their names.
func fields(v rawjson.Value) map[string]rawjson.Value {
	all := make(map[string]rawjson.Value)
	if v.Kind() == rawjson.Object {
		for name, value := range v.Fields() {
			all[name] = value
		}
	}
	return all
}

// rest appends the members of the whole object except for its identity and metadata.
func (r *recaller) rest(prints, now rawjson.Value) {
	present := fields(now)
	for name, made := range prints.Fields() {
		if name != "metadata" {
			r.name(name)
			r.within(name, func() { r.value(made, present[name], name == "data") })
		}
	}
}

// members appends the members of an object, by its fingerprints. encoded: texts are base64.
func (r *recaller) members(prints, now rawjson.Value, encoded bool) {
	present := fields(now)
	for name, made := range prints.Fields() {
		r.name(name)
		r.within(name, func() { r.value(made, present[name], encoded) })
	}
}

// value appends a value, by its fingerprint and the value of now, which is empty if there is none.
func (r *recaller) value(made, now rawjson.Value, encoded bool) {
	switch made.Kind() {
	case rawjson.Object:
		r.b = append(r.b, '{')
		r.members(made, now, encoded)
		r.b = append(r.b, '}')
	case rawjson.Array:
		r.elements(made, now, encoded)
	case rawjson.String:
		r.hashed(made.Str(), now, encoded)
	default:
		r.b = append(r.b, "null"...)
	}
}

func (r *recaller) elements(prints, now rawjson.Value, encoded bool) {
	var present []rawjson.Value
	if now.Kind() == rawjson.Array {
		for v := range now.Elems() {
			present = append(present, v)
		}
	}
	r.b = append(r.b, '[')
	n := 0
	for made := range prints.Elems() {
		var v rawjson.Value
		if n < len(present) {
			v = present[n]
		}
		r.comma()
		r.within(strconv.Itoa(n), func() { r.value(made, v, encoded) })
		n++
	}
	r.b = append(r.b, ']')
}

// hashed appends the value of a hash: that of now if it is equal, and else a placeholder.
func (r *recaller) hashed(sum string, now rawjson.Value, encoded bool) {
	kind, text := kindOf(now)
	switch {
	case kind != 0 && r.sum(kind, text) == sum:
		r.b = append(r.b, now...)
	case sum != "" && kind == sum[0]:
		r.unknown(now, encoded)
	case sum != "" && sum[0] == boolKind:
		r.b = strconv.AppendBool(r.b, r.sum(boolKind, "true") == sum)
	case sum != "":
		r.unknown(sampleOf(sum[0]), encoded)
	default:
		r.b = append(r.b, "null"...)
	}
}

// sampleOf returns a value of a kind.
func sampleOf(kind byte) rawjson.Value {
	switch kind {
	case timeKind:
		return `"2000-01-01T00:00:00Z"`
	case numberKind:
		return "0"
	case objectKind:
		return `{"unknown":""}`
	case arrayKind:
		return `[""]`
	}
	return `""`
}
