package event

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// client-go handles objects through these two interfaces. Its Reflector and Indexer only ever read from them; the setters do
// nothing, because an Object is immutable.
var (
	_ runtime.Object = (*Object)(nil)
	_ metav1.Object  = (*Object)(nil)
)

// GetObjectKind implements runtime.Object; the kind comes from the text.
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.Raw().Get("apiVersion").Str(), Kind: o.Raw().Get("kind").Str()}
}

// DeepCopyObject implements runtime.Object. An immutable value is its own copy.
func (o *Object) DeepCopyObject() runtime.Object { return o }

func (o *Object) meta(name string) rawjson.Value { return o.Raw().Path("metadata", name) }

// The getters of metav1.Object.

func (o *Object) GetNamespace() string       { return o.key.Namespace }
func (o *Object) GetName() string            { return o.key.Name }
func (o *Object) GetUID() types.UID          { return types.UID(o.uid) }
func (o *Object) GetResourceVersion() string { return o.resourceVersion }
func (o *Object) GetGenerateName() string    { return o.meta("generateName").Str() }
func (o *Object) GetSelfLink() string        { return "" }
func (o *Object) GetGeneration() int64       { return 0 }
func (o *Object) GetCreationTimestamp() metav1.Time {
	if t := parseTime(o.meta("creationTimestamp")); t != nil {
		return *t
	}
	return metav1.Time{}
}

func (o *Object) GetDeletionTimestamp() *metav1.Time    { return parseTime(o.meta("deletionTimestamp")) }
func (o *Object) GetDeletionGracePeriodSeconds() *int64 { return nil }
func (o *Object) GetLabels() map[string]string          { return stringMap(o.meta("labels")) }

func (o *Object) GetAnnotations() map[string]string             { return stringMap(o.meta("annotations")) }
func (o *Object) GetFinalizers() []string                       { return nil }
func (o *Object) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// The setters of metav1.Object, which do nothing.

func (o *Object) SetNamespace(string)                          {}
func (o *Object) SetName(string)                               {}
func (o *Object) SetGenerateName(string)                       {}
func (o *Object) SetUID(types.UID)                             {}
func (o *Object) SetResourceVersion(string)                    {}
func (o *Object) SetGeneration(int64)                          {}
func (o *Object) SetSelfLink(string)                           {}
func (o *Object) SetCreationTimestamp(metav1.Time)             {}
func (o *Object) SetDeletionTimestamp(*metav1.Time)            {}
func (o *Object) SetDeletionGracePeriodSeconds(*int64)         {}
func (o *Object) SetLabels(map[string]string)                  {}
func (o *Object) SetAnnotations(map[string]string)             {}
func (o *Object) SetFinalizers([]string)                       {}
func (o *Object) SetOwnerReferences([]metav1.OwnerReference)   {}
func (o *Object) SetManagedFields([]metav1.ManagedFieldsEntry) {}

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
