package event

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Resource says what kind of object something is and which cluster it lives in. One Resource is
// shared by all objects of a watch.
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

// Object is the state of an object of the cluster at one resourceVersion: the JSON that the API
// server sent (less what the source drops) and its identity. It is immutable and safe for
// concurrent use; all holders share one copy.
//
// client-go's Reflector and Indexer take it as a runtime.Object, see meta.go.
type Object struct {
	resource *Resource
	json     string
	// These are pieces of json, not copies, unless they had escapes.
	key             Key
	uid             string
	resourceVersion string
}

// ErrNoIdentity says that a text is JSON but not an object of a Kubernetes API.
var ErrNoIdentity = errors.New("not a Kubernetes object: metadata.name is missing or not a string")

// ParseObject makes an Object of the checked JSON text of one (see [rawjson.Check]). It keeps the
// text without copying it. The error wraps [ErrNoIdentity] or names the metadata field that is no
// string; it never quotes the text.
func ParseObject(resource *Resource, text string) (*Object, error) {
	o := &Object{resource: resource, json: strings.Trim(text, " \t\r\n")}
	for name, value := range rawjson.Value(o.json).Get("metadata").Fields() {
		field := o.identityField(name)
		if field == nil || value.IsNull() {
			continue
		}
		if value.Kind() != rawjson.String {
			return nil, fmt.Errorf("metadata.%s is not a string", name)
		}
		*field = value.Str()
	}
	if o.key.Name == "" {
		return nil, ErrNoIdentity
	}
	return o, nil
}

// Identity returns an Object of which nothing is known but who it is: it has no resourceVersion.
func Identity(resource *Resource, key Key, uid string) *Object {
	o := &Object{resource: resource, key: key, uid: uid}
	o.json = fmt.Sprintf(`{"metadata":{"name":%s,"namespace":%s,"uid":%s}}`, rawjson.Quote(key.Name), rawjson.Quote(key.Namespace), rawjson.Quote(uid))
	return o
}

func (o *Object) identityField(name string) *string {
	switch name {
	case "name":
		return &o.key.Name
	case "namespace":
		return &o.key.Namespace
	case "uid":
		return &o.uid
	case "resourceVersion":
		return &o.resourceVersion
	}
	return nil
}

// Resource returns what kind of object it is. The result is shared and must not be modified.
func (o *Object) Resource() *Resource { return o.resource }

// Key returns namespace and name.
func (o *Object) Key() Key { return o.key }

// UID returns metadata.uid, which tells two incarnations of one name apart.
func (o *Object) UID() string { return o.uid }

// ResourceVersion returns metadata.resourceVersion.
func (o *Object) ResourceVersion() string { return o.resourceVersion }

// JSON returns the object's JSON text. The slice is the object itself, not a copy: it must not be
// written to.
func (o *Object) JSON() []byte { return unsafe.Slice(unsafe.StringData(o.json), len(o.json)) }

// Raw returns the object's JSON as a value to read fields from.
func (o *Object) Raw() rawjson.Value { return rawjson.Value(o.json) }

// Size returns about how many bytes of memory the object takes.
func (o *Object) Size() int { return len(o.json) + int(unsafe.Sizeof(*o)) }

// Same reports whether o and other are the same incarnation at the same resourceVersion. Two nil
// objects are the same.
func (o *Object) Same(other *Object) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.uid == other.uid && o.resourceVersion == other.resourceVersion && o.key == other.key
}

// String names the object in logs and errors: namespace/name, never its content.
func (o *Object) String() string { return o.key.String() }
