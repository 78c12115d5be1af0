package fingerprint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

const identity = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"1"}}`

// secret returns the text of a Secret in the state of identity, with further members of metadata
// and of the object.
func secret(metadata, members string) rawjson.Value {
	return rawjson.Value(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"1"` + metadata + `}` + members + `}`)
}

var key = NewKey([]byte("key"))

// recall returns the state was, as it is recalled from its fingerprints and now.
func recall(t *testing.T, was, now rawjson.Value) rawjson.Value {
	t.Helper()
	got := key.PastOf(key.ID(), "u", key.Of("u", was)).Recall(identity, now)
	if err := rawjson.Check(got); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	return rawjson.Value(got)
}

// TestRecall: equal values are copied, fields that the state did not have are missing, and changed
// values are placeholders.
func TestRecall(t *testing.T) {
	const unknown = `"KHVua25vd24p"` // Placeholder in base64
	was := secret(`,"labels":{"a":"1","b":"2"}`, `,"data":{"k":"djE=","l":"djI="},"immutable":false,"type":"Opaque"`)
	for _, test := range []struct{ name, metadata, members, want string }{
		{"nothing", `,"labels":{"a":"1","b":"2"}`, `,"data":{"k":"djE=","l":"djI="},"immutable":false,"type":"Opaque"`, string(was)},
		{
			"a key of data", `,"labels":{"a":"1","b":"2"}`, `,"data":{"k":"djE=","l":"new="},"immutable":false,"type":"Opaque"`,
			strings.Replace(string(was), `"djI="`, unknown, 1),
		},
		{
			"a label", `,"labels":{"a":"1","b":"3"}`, `,"data":{"k":"djE=","l":"djI="},"immutable":false,"type":"Opaque"`,
			strings.Replace(string(was), `"2"`, `"(unknown)"`, 1),
		},
		{"a new key", `,"labels":{"a":"1","b":"2","c":"3"}`, `,"data":{"k":"djE=","l":"djI=","m":"bQ=="},"immutable":false,"type":"Opaque"`, string(was)},
		{
			"a key less", `,"labels":{"a":"1"}`, `,"data":{"k":"djE="},"immutable":false,"type":"Opaque"`,
			strings.Replace(strings.Replace(string(was), `"2"`, `"(unknown)"`, 1), `"djI="`, unknown, 1),
		},
		{
			"no data", `,"labels":{"a":"1","b":"2"}`, `,"immutable":true,"type":"Opaque"`,
			strings.NewReplacer(`"djE="`, unknown, `"djI="`, unknown).Replace(string(was)),
		},
		{
			"the values of two keys exchanged", `,"labels":{"a":"2","b":"1"}`, `,"data":{"k":"djI=","l":"djE="},"immutable":false,"type":"Opaque"`,
			strings.NewReplacer(`"djE="`, unknown, `"djI="`, unknown, `"a":"1"`, `"a":"(unknown)"`, `"2"`, `"(unknown)"`).Replace(string(was)),
		},
		{
			"the placeholder itself", `,"labels":{"a":"1","b":"(unknown)"}`, `,"data":{"k":` + unknown + `,"l":"djI="},"immutable":false,"type":"Opaque"`,
			strings.NewReplacer(`"djE="`, `"KHVua25vd24pLi4u"`, `"2"`, `"(unknown)..."`).Replace(string(was)),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, want := recall(t, was, secret(test.metadata, test.members)), normal(rawjson.Value(test.want)); normal(got) != want {
				t.Errorf("got  %s\nwant %s", normal(got), want)
			}
		})
	}
}

// normal returns the text of the metadata, and that of the other members.
func normal(o rawjson.Value) (text string) {
	for name, v := range o.Get("metadata").Fields() {
		text += name + "=" + string(v) + " "
	}
	for name, v := range o.Fields() {
		if name != "metadata" {
			text += name + "=" + string(v) + " "
		}
	}
	return text
}

// TestRecallKinds: a placeholder has the kind of the value.
func TestRecallKinds(t *testing.T) {
	was := secret(`,"generation":1,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a","b"],"ownerReferences":[{"name":"x","controller":true}],"x":null`, ``)
	for now, want := range map[rawjson.Value]string{
		secret(`,"generation":-1,"deletionTimestamp":"1970-01-01T00:00:00Z","finalizers":["a","c"],"ownerReferences":[{"name":"x","controller":false}]`, ``): `` +
			`"generation":-2,"deletionTimestamp":"1970-01-02T00:00:00Z","finalizers":["a","(unknown)"],"ownerReferences":[{"name":"x","controller":true}],"x":null`,
		secret(`,"generation":"1","finalizers":{"a":"b"},"ownerReferences":[]`, ``): `` +
			`"generation":-1,"deletionTimestamp":"1970-01-01T00:00:00Z","finalizers":["(unknown)","(unknown)"],"ownerReferences":[{"name":"(unknown)","controller":true}],"x":null`,
	} {
		if got := recall(t, was, now); !strings.Contains(string(got), want) {
			t.Errorf("got %s", got)
		}
	}
}

// TestUnknown: without fingerprints, or with those of another key, no value is known, and none of
// the present fields is taken for missing.
func TestUnknown(t *testing.T) {
	now := secret(`,"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"labels":{"a":"1"},"finalizers":["f"]`, `,"data":{"k":"djE="},"immutable":true,"type":"Opaque"`)
	want := secret(`,"creationTimestamp":"2026-01-01T00:00:00Z","generation":-1,"labels":{"a":"(unknown)"},"finalizers":["(unknown)"]`,
		`,"data":{"k":"KHVua25vd24p"},"immutable":false,"type":"(unknown)"`)
	other := NewKey([]byte("another"))
	for name, past := range map[string]*Past{
		"none":        {},
		"another key": other.PastOf(key.ID(), "u", key.Of("u", now)),
		"no key":      (*Key)(nil).PastOf(key.ID(), "u", key.Of("u", now)),
		"damaged":     key.PastOf(key.ID(), "u", key.Of("u", now)[1:]),
		"no object":   key.PastOf(key.ID(), "u", `[]`),
	} {
		if got := past.Recall(identity, now); normal(rawjson.Value(got)) != normal(want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestHostile: a text that is no fingerprints has a result that is an object.
func TestHostile(t *testing.T) {
	now := secret(`,"labels":{"a":"1"}`, `,"data":{"k":"djE="}`)
	for _, prints := range []string{`{}`, `{"data":"","metadata":""}`, `{"data":1,"metadata":[]}`, `{"data":"x","metadata":{"labels":["", "z"]}}`, `{"data":{"k":{"k":"oo"}}}`} {
		if got := key.PastOf(key.ID(), "u", prints).Recall(identity, now); rawjson.Check(got) != nil {
			t.Errorf("%s: %s", prints, got)
		}
	}
}

// TestNoValues: the fingerprints have no value, and do not show equal ones.
func TestNoValues(t *testing.T) {
	o := secret(`,"labels":{"a":"canary"},"annotations":{"b":"canary"}`, `,"data":{"k":"canary","l":"canary"},"list":["canary",{"x":"canary"}]`)
	text := key.Of("u", o)
	must.Succeed(t, rawjson.Check(text))
	if strings.Contains(text, "canary") {
		t.Error(text)
	}
	seen := make(map[string]bool)
	for _, of := range []string{text, key.Of("v", o), NewKey([]byte("another")).Of("u", o)} {
		for _, word := range strings.Split(of, `"`) {
			if len(word) > 20 {
				if seen[word] {
					t.Errorf("%s twice", word)
				}
				seen[word] = true
			}
		}
	}
	if len(seen) != 18 {
		t.Errorf("%d hashes", len(seen))
	}
}

// TestBounds: beyond the bounds a container is known or unknown as a whole.
func TestBounds(t *testing.T) {
	var many strings.Builder
	for i := range MaxFields + 1 {
		fmt.Fprintf(&many, `,"k%d":"djE="`, i)
	}
	deep := strings.Repeat(`{"x":`, 100) + `"djE="` + strings.Repeat("}", 100)
	lists := strings.Repeat(`,["djE="]`, MaxFields-1)
	members := func(value string) string {
		many := strings.Replace(many.String(), "djE=", value, 1)
		return `,"data":{` + many[1:] + `},"deep":` + strings.Replace(deep, "djE=", value, 1) + `,"lists":[["` + value + `"]` + lists + `],"type":"Opaque"`
	}
	was := secret(`,"labels":{"a":"1"}`, members("djE="))
	if text := key.Of("u", was); len(text) > 40*MaxValues || strings.Count(text, `"x"`) > MaxDepth {
		t.Errorf("%d bytes", len(text))
	}
	if got := recall(t, was, was); normal(got) != normal(was) {
		t.Error("an equal state is not known")
	}
	got := recall(t, was, secret(`,"labels":{"a":"1"}`, members("bmV3")))
	if strings.Contains(string(got.Get("data")), "djE=") || len(fields(got.Get("data"))) != MaxFields+1 {
		t.Error("a container beyond the bounds is not unknown as a whole")
	}
	if strings.Contains(string(got), "bmV3") || got.Get("type") != `"Opaque"` || got.Get("metadata").Get("labels") != `{"a":"1"}` {
		t.Error("a changed value is known, or an equal one is not")
	}
}
