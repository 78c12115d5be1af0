package event

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// client-go handles objects through these interfaces. Its Reflector and Indexer only read from
// them.
var (
	_ runtime.Object            = (*Object)(nil)
	_ metav1.ObjectMetaAccessor = (*Object)(nil)
	_ metav1.Object             = (*metadata)(nil)
)

// GetObjectKind implements runtime.Object; the kind comes from the text.
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.Raw().Get("apiVersion").Str(), Kind: o.Raw().Get("kind").Str()}
}

// DeepCopyObject implements runtime.Object. An immutable value is its own copy.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// GetObjectMeta implements metav1.ObjectMetaAccessor. The result shares the memory of the object.
func (o *Object) GetObjectMeta() metav1.Object { return (*metadata)(o) }

// Labels returns a copy of metadata.labels; nil: there are none.
func (o *Object) Labels() map[string]string { return stringMap(metadataField(o.json, "labels")) }

// metadata implements the part of metav1.Object that client-go uses. The getters return the fields
// that the Reflector and the Indexer read; all others return zero values. The setters do nothing,
// because an Object is immutable.
type metadata Object

func metadataField(json, name string) rawjson.Value {
	return rawjson.Value(json).Path("metadata", name)
}

func (m *metadata) GetNamespace() string       { return (*Object)(m).field(namespaceField) }
func (m *metadata) GetName() string            { return (*Object)(m).field(nameField) }
func (m *metadata) GetUID() types.UID          { return types.UID((*Object)(m).UID()) }
func (m *metadata) GetResourceVersion() string { return (*Object)(m).ResourceVersion() }
func (m *metadata) GetGenerateName() string    { return metadataField(m.json, "generateName").Str() }
func (m *metadata) GetSelfLink() string        { return "" }
func (m *metadata) GetGeneration() int64       { return 0 }
func (m *metadata) GetCreationTimestamp() metav1.Time {
	if t := parseTime(metadataField(m.json, "creationTimestamp")); t != nil {
		return *t
	}
	return metav1.Time{}
}

func (m *metadata) GetDeletionTimestamp() *metav1.Time {
	return parseTime(metadataField(m.json, "deletionTimestamp"))
}
func (m *metadata) GetDeletionGracePeriodSeconds() *int64 { return nil }
func (m *metadata) GetLabels() map[string]string          { return stringMap(metadataField(m.json, "labels")) }

func (m *metadata) GetAnnotations() map[string]string {
	return stringMap(metadataField(m.json, "annotations"))
}
func (m *metadata) GetFinalizers() []string                       { return nil }
func (m *metadata) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (m *metadata) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

func (m *metadata) SetNamespace(string)                          {}
func (m *metadata) SetName(string)                               {}
func (m *metadata) SetGenerateName(string)                       {}
func (m *metadata) SetUID(types.UID)                             {}
func (m *metadata) SetResourceVersion(string)                    {}
func (m *metadata) SetGeneration(int64)                          {}
func (m *metadata) SetSelfLink(string)                           {}
func (m *metadata) SetCreationTimestamp(metav1.Time)             {}
func (m *metadata) SetDeletionTimestamp(*metav1.Time)            {}
func (m *metadata) SetDeletionGracePeriodSeconds(*int64)         {}
func (m *metadata) SetLabels(map[string]string)                  {}
func (m *metadata) SetAnnotations(map[string]string)             {}
func (m *metadata) SetFinalizers([]string)                       {}
func (m *metadata) SetOwnerReferences([]metav1.OwnerReference)   {}
func (m *metadata) SetManagedFields([]metav1.ManagedFieldsEntry) {}

func stringMap(v rawjson.Value) map[string]string {
	var m map[string]string
	for key, value := range v.Fields() {
		if m == nil {
			m = make(map[string]string)
		}
		m[key] = value.Str()
	}
	return m
}

func parseTime(v rawjson.Value) *metav1.Time {
	t, err := time.Parse(time.RFC3339, v.Str())
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: t}
}
