package event

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Resource is the type of an object and the cluster that contains it. All objects of a watch share
// one Resource.
type Resource struct {
	schema.GroupVersionResource

	Cluster string // the configured name of the cluster
	Kind    string // Pod; may be empty until discovery has answered
}

// String returns [group/]version/resource, as the configuration writes it.
func (r *Resource) String() string {
	if r.Group == "" {
		return r.Version + "/" + r.Resource
	}
	return r.Group + "/" + r.Version + "/" + r.Resource
}

// Key names an object among those of its resource.
type Key struct {
	Namespace string // empty for a cluster-scoped object
	Name      string
}

// String returns namespace/name, or the name alone for a cluster-scoped object.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Object is the state of an object of the cluster at one resourceVersion: its identity, and the
// JSON that the API server sent, without the fields that the source drops. It is immutable and safe
// for concurrent use. All holders share one copy.
//
// client-go's Reflector and Indexer use it as a runtime.Object, see meta.go.
//
// The garbage collector follows each pointer of each cached object, and one into the middle of a
// text costs more than one to its begin. So the identity is offsets in the text, not strings.
type Object struct {
	resource *Resource
	apart    *identity // the identity; nil: it stands in json
	json     string
	spec     uint32 // see ParseIndexed
	status   uint32
	// The place of each field of the identity in json; size 0: the field is empty.
	at   [identityFields]uint32
	size [identityFields]uint16
}

// The fields of an identity.
const (
	nameField = iota
	namespaceField
	uidField
	versionField
	identityFields
)

// identity has the values of the fields of an identity.
type identity struct {
	fields [identityFields]string
	past   Past    // see AsBare; nil: the object is not bare
	later  *Object // see Delta.StandIn; nil: there is none
}

// ErrNoIdentity is the error of JSON that is not an object of a Kubernetes API.
var ErrNoIdentity = errors.New("not a Kubernetes object: metadata.name is missing or not a string")

// ParseObject makes an Object of JSON that [rawjson.Check] has accepted. It keeps the text without
// copying it. The error wraps [ErrNoIdentity], or names a metadata field that is not a string. It
// never quotes the text.
func ParseObject(resource *Resource, text string) (*Object, error) {
	o := &Object{resource: resource, json: strings.Trim(text, " \t\r\n")}
	// Fields stops at the end of metadata, so its end need not be found before. Most writers put
	// the labels and annotations behind the identity.
	metadata, left := rawjson.Value(rawjson.Member(o.json, "metadata")), identityFields
	for name, value := range metadata.Fields() {
		field := fieldOf(name)
		if field < 0 || value.IsNull() {
			continue
		}
		if value.Kind() != rawjson.String {
			return nil, fmt.Errorf("metadata.%s is not a string", name)
		}
		o.set(field, value.Str())
		if left--; left == 0 {
			break
		}
	}
	if o.field(nameField) == "" {
		return nil, ErrNoIdentity
	}
	return o, nil
}

// Identity returns an Object with an identity only. It has no resourceVersion.
func Identity(resource *Resource, key Key, uid string) *Object {
	o := &Object{resource: resource, apart: &identity{fields: [identityFields]string{nameField: key.Name, namespaceField: key.Namespace, uidField: uid}}}
	o.json = fmt.Sprintf(`{"metadata":{"name":%s,"namespace":%s,"uid":%s}}`, rawjson.Quote(key.Name), rawjson.Quote(key.Namespace), rawjson.Quote(uid))
	return o
}

// ParseIndexed is [ParseObject] for a text without spaces around it, in which the values of the
// members spec and status begin at two offsets; 0: unknown. They are large and stand behind the
// metadata, so a search for them would read most of the text.
func ParseIndexed(resource *Resource, text string, spec, status uint32) (*Object, error) {
	o, err := ParseObject(resource, text)
	if err != nil {
		return nil, err
	}
	o.spec, o.status = spec, status
	return o, nil
}

// fieldOf returns the field of the identity with a name in JSON; -1: it is none.
func fieldOf(name string) int {
	switch name {
	case "name":
		return nameField
	case "namespace":
		return namespaceField
	case "uid":
		return uidField
	case "resourceVersion":
		return versionField
	}
	return -1
}

// set sets a field of the identity to a value, which is a piece of json unless it had escapes.
func (o *Object) set(field int, value string) {
	if o.apart == nil {
		at := uintptr(unsafe.Pointer(unsafe.StringData(value))) - uintptr(unsafe.Pointer(unsafe.StringData(o.json)))
		switch {
		case value == "":
			o.size[field] = 0
			return
		case at < uintptr(len(o.json)) && at <= math.MaxUint32 && len(value) <= math.MaxUint16:
			o.at[field], o.size[field] = uint32(at), uint16(len(value)) //nolint:gosec // checked
			return
		}
		o.setApart()
	}
	o.apart.fields[field] = value
}

// setApart makes the identity one that does not stand in json.
func (o *Object) setApart() {
	o.apart = &identity{fields: [identityFields]string{o.field(nameField), o.field(namespaceField), o.field(uidField), o.field(versionField)}}
}

// field returns a field of the identity.
func (o *Object) field(field int) string {
	if o.apart != nil {
		return o.apart.fields[field]
	}
	at := int(o.at[field])
	return o.json[at : at+int(o.size[field])]
}

// Resource returns the type of the object. The result is shared and must not be modified.
func (o *Object) Resource() *Resource { return o.resource }

// Key returns namespace and name.
func (o *Object) Key() Key { return Key{o.field(namespaceField), o.field(nameField)} }

// Home returns the namespace that the object belongs to: its own, or, of a Namespace, its name. It
// is empty for any other object without a namespace.
func (o *Object) Home() string {
	namespace := o.field(namespaceField)
	if r := o.resource; namespace == "" && r != nil && r.Group == "" && r.Resource == "namespaces" {
		return o.field(nameField)
	}
	return namespace
}

// UID returns metadata.uid. It differs between two objects that had the same name one after the
// other.
func (o *Object) UID() string { return o.field(uidField) }

// ResourceVersion returns metadata.resourceVersion.
func (o *Object) ResourceVersion() string { return o.field(versionField) }

// JSON returns the JSON text of the object. The slice shares the memory of the object and must not
// be modified.
func (o *Object) JSON() []byte { return unsafe.Slice(unsafe.StringData(o.json), len(o.json)) }

// Raw returns the JSON of the object as a value, to read fields from.
func (o *Object) Raw() Value { return rawjson.Value(o.json) }

// Member returns the text of the object from the begin of a member's value, or "" if there is no
// such member.
func (o *Object) Member(key string) string {
	if open := o.Place(key); open != "" {
		return open
	}
	return rawjson.Member(o.json, key)
}

// Place is Member without a search: it returns "" if the place of the member is not known.
func (o *Object) Place(key string) string {
	switch {
	case key == "spec" && o.spec > 0:
		return o.json[o.spec:]
	case key == "status" && o.status > 0:
		return o.json[o.status:]
	}
	return ""
}

// Size returns the approximate memory of the object in bytes.
func (o *Object) Size() int { return len(o.json) + int(unsafe.Sizeof(*o)) }

// Same reports whether o and other have the same key, UID and resourceVersion. Two nil objects are
// the same.
func (o *Object) Same(other *Object) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.UID() == other.UID() && o.ResourceVersion() == other.ResourceVersion() && o.Key() == other.Key()
}

// String names the object in logs and errors: namespace/name, without content.
func (o *Object) String() string { return o.Key().String() }
