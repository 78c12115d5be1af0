package event_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func pods() *event.Resource {
	return &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "prod", Kind: "Pod"}
}

func parse(t *testing.T, text string) *event.Object {
	t.Helper()
	must.Succeed(t, rawjson.Check(text))
	o, err := event.ParseObject(pods(), text)
	must.Succeed(t, err)
	return o
}

func TestParseObject(t *testing.T) {
	tests := []struct {
		name, text            string
		key                   event.Key
		uid, version, mistake string
	}{
		{"all", ` {"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}} `, event.Key{Namespace: "n", Name: "a"}, "u", "7", ""},
		{"cluster-scoped", `{"metadata":{"name":"a"}}`, event.Key{Name: "a"}, "", "", ""},
		{"keys in any order, escapes", `{"x":{"metadata":{"name":"no"}},"metadata":{"uid":"\u0075","labels":{"name":"no"},"na\u006de":"\"é"}}`, event.Key{Name: `"é`}, "u", "", ""},
		{"escapes behind", `{"metadata":{"name":"a","namespace":"n","uid":"u\u0075","resourceVersion":"7"}}`, event.Key{Namespace: "n", Name: "a"}, "uu", "7", ""},
		{"a long uid", `{"metadata":{"name":"a","resourceVersion":"7","uid":"` + strings.Repeat("u", 70_000) + `"}}`, event.Key{Name: "a"}, strings.Repeat("u", 70_000), "7", ""},
		{"twice", `{"metadata":{"name":"a","uid":"u","uid":"v","name":""}}`, event.Key{Name: "a"}, "v", "", "metadata.name is missing"},
		{"null", `{"metadata":{"name":"a","namespace":null}}`, event.Key{Name: "a"}, "", "", ""},
		{"no name", `{"metadata":{"namespace":"n"}}`, event.Key{}, "", "", "metadata.name is missing"},
		{"empty name", `{"metadata":{"name":""}}`, event.Key{}, "", "", "metadata.name is missing"},
		{"no metadata", `{"kind":"Status"}`, event.Key{}, "", "", "metadata.name is missing"},
		{"no object", `[{"metadata":{"name":"a"}}]`, event.Key{}, "", "", "metadata.name is missing"},
		{"number as name", `{"metadata":{"name":5}}`, event.Key{}, "", "", "metadata.name is not a string"},
		{"object as uid", `{"metadata":{"name":"a","uid":{"secret":1}}}`, event.Key{}, "", "", "metadata.uid is not a string"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, err := event.ParseObject(pods(), test.text)
			if test.mistake != "" {
				if err == nil || !strings.Contains(err.Error(), test.mistake) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("error %v, want %q", err, test.mistake)
				}
				if strings.Contains(test.mistake, "missing") != errors.Is(err, event.ErrNoIdentity) {
					t.Errorf("%v: is it ErrNoIdentity?", err)
				}
				return
			}
			must.Succeed(t, err)
			if o.Key() != test.key || o.UID() != test.uid || o.ResourceVersion() != test.version {
				t.Errorf("got %v, %s, %s", o.Key(), o.UID(), o.ResourceVersion())
			}
			if got := string(o.JSON()); got != strings.TrimSpace(test.text) {
				t.Errorf("text %s", got)
			}
		})
	}
}

// The metadata that client-go reads comes from the JSON text.
func TestMetadata(t *testing.T) {
	o := parse(t, `{"kind":"Pod","apiVersion":"apps/v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","generateName":"g",
		"creationTimestamp":"2026-11-20T09:00:00Z","deletionTimestamp":"2026-11-20T10:00:00Z","labels":{"l":"1"},"annotations":{"a":"2"}}}`)
	m, err := meta.Accessor(o)
	must.Succeed(t, err)
	if key, err := cache.MetaNamespaceKeyFunc(o); err != nil || key != "n/a" {
		t.Error(key, err)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	if !m.GetCreationTimestamp().Time.Equal(at) || !m.GetDeletionTimestamp().Time.Equal(at.Add(time.Hour)) || m.GetGenerateName() != "g" {
		t.Error(m.GetCreationTimestamp(), m.GetDeletionTimestamp(), m.GetGenerateName())
	}
	if !reflect.DeepEqual(m.GetLabels(), map[string]string{"l": "1"}) || !reflect.DeepEqual(m.GetAnnotations(), map[string]string{"a": "2"}) {
		t.Error(m.GetLabels(), m.GetAnnotations())
	}
	if got := o.GetObjectKind().GroupVersionKind(); got != (schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Pod"}) {
		t.Error(got)
	}
	before := string(o.JSON())
	m.SetName("other")
	m.SetLabels(nil)
	if o.DeepCopyObject() != o || string(o.JSON()) != before || o.Key().Name != "a" || m.GetName() != "a" {
		t.Error("an object changed")
	}
	if bare := parse(t, `{"metadata":{"name":"a"}}`).GetObjectMeta(); !bare.GetCreationTimestamp().Time.IsZero() || bare.GetDeletionTimestamp() != nil || bare.GetLabels() != nil {
		t.Error("something comes from nothing")
	}
}

func TestSame(t *testing.T) {
	a := parse(t, `{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`)
	for text, want := range map[string]bool{
		`{"metadata":{"name":"a","uid":"u","resourceVersion":"7"},"x":1}`: true,
		`{"metadata":{"name":"a","uid":"u","resourceVersion":"8"}}`:       false,
		`{"metadata":{"name":"a","uid":"v","resourceVersion":"7"}}`:       false,
		`{"metadata":{"name":"b","uid":"u","resourceVersion":"7"}}`:       false,
	} {
		if a.Same(parse(t, text)) != want {
			t.Errorf("%s: want %v", text, want)
		}
	}
	if a.Same(nil) || !(*event.Object)(nil).Same(nil) {
		t.Error("nil")
	}
}

// TestObjectIsSmall: beside its text, an object has only offsets and few pointers.
func TestObjectIsSmall(t *testing.T) {
	o := parse(t, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}`)
	if beside := o.Size() - len(o.JSON()); beside > 64 {
		t.Errorf("%d bytes beside the text, want at most 64", beside)
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = o.Key(), o.UID() }); got > 0 {
		t.Errorf("%v allocations to read the identity, want none", got)
	}
	strange := event.Identity(pods(), event.Key{Namespace: "n", Name: "\xff\""}, "")
	if strange.Key() != (event.Key{Namespace: "n", Name: "\xff\""}) || strange.UID() != "" || rawjson.Check(string(strange.JSON())) != nil {
		t.Errorf("%q: %s", strange.Key(), strange.JSON())
	}
}

func TestNames(t *testing.T) {
	deployments := event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}
	if got := pods().String() + " " + deployments.String(); got != "v1/pods apps/v1/deployments" {
		t.Error(got)
	}
	if got := (event.Key{Namespace: "n", Name: "a"}).String() + " " + (event.Key{Name: "a"}).String(); got != "n/a a" {
		t.Error(got)
	}
}

func BenchmarkParseObject(b *testing.B) {
	const text = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","generateName":"web-","namespace":"default","uid":"0b8e2d54-3f6a-4c1d-9e7b-2a5f8c6d1e90","resourceVersion":"1000000042"},"spec":{}}`
	resource := pods()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.ParseObject(resource, text); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMetadata reads the metadata that client-go reads of each object.
func BenchmarkMetadata(b *testing.B) {
	o, err := event.ParseObject(pods(), `{"metadata":{"name":"web-0","namespace":"default","uid":"u","resourceVersion":"7"}}`)
	must.Succeed(b, err)
	b.ReportAllocs()
	for b.Loop() {
		m, err := meta.Accessor(o)
		if err != nil || m.GetResourceVersion() != "7" || m.GetName() != "web-0" {
			b.Fatal(m, err)
		}
	}
}

// TestRecalled: an object that was restored as its identity is recalled from a later state of it,
// and any other object stays as it is.
func TestRecalled(t *testing.T) {
	key := fingerprint.NewKey([]byte("key"))
	was := parse(t, `{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"1"},"data":{"a":"djE=","b":"djI="}}`)
	now := parse(t, `{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"2"},"data":{"a":"djE=","b":"djM=","c":"djQ="}}`)
	other := parse(t, `{"metadata":{"name":"s","namespace":"n","uid":"v","resourceVersion":"3"},"data":{"a":"djE="}}`)
	bare := parse(t, `{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"1"}}`)
	restored := bare.AsBare(key.PastOf(key.ID(), "u", key.Of("u", was.Raw())))
	if bare.IsBare() || !restored.IsBare() || restored.IsUnknown() || !bare.AsBare(&fingerprint.Past{}).IsUnknown() || restored.Key() != bare.Key() || restored.Raw() != bare.Raw() || !restored.Same(was) {
		t.Errorf("%+v, %+v", bare, restored)
	}
	got := restored.Recalled(now)
	if data := got.Raw().Get("data"); data != `{"a":"djE=","b":"KHVua25vd24p"}` || !got.Same(was) || got.IsBare() || got.Resource() != bare.Resource() {
		t.Errorf("%s", got.JSON())
	}
	for name, o := range map[string]*event.Object{"a whole object": was.Recalled(now), "another object": restored.Recalled(other), "another identity": restored.Recalled(restored)} {
		if o != was && o != restored {
			t.Errorf("%s: %s", name, o.JSON())
		}
	}
}
