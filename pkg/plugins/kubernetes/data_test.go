package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func deltaEvent(t testing.TB, data string) *event.Event {
	t.Helper()
	resource := &event.Resource{Cluster: "c", Kind: "Deployment", GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}
	o, err := event.ParseObject(resource, `{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"7"}}`)
	must.Succeed(t, err)
	e := event.New(&event.Delta{Source: "s", Op: event.Added, New: o}, "r", 0, []byte(data))
	return &e
}

// TestParse checks the parsed operations: the verb and target of each, and the body of its request.
func TestParse(t *testing.T) {
	const own = "apps/v1/deployments shop/web"
	for _, c := range []struct{ data, want, body string }{
		{`{"merge":{"a":1.0}}`, "merge " + own, `{"a":1.0,"metadata":{"uid":"u1"}}`},
		{`{"merge":{"metadata":{"labels":{"x":null}}}}`, "merge " + own, `{"metadata":{"labels":{"x":null},"uid":"u1"}}`},
		{`{"merge":{},"target":{"resource":"v1/nodes","name":"n:1"}}`, "merge v1/nodes n:1", `{}`},
		{`{"merge":{},"target":{"resource":"v1/pods","namespace":"n","name":"p","uid":"u2"},"subresource":"status"}`, "merge status of v1/pods n/p", `{"metadata":{"uid":"u2"}}`},
		{`{"json":[]}`, "json " + own, `[{"op":"test","path":"/metadata/uid","value":"u1"}]`},
		{`{"json":[{"op":"move","path":"/a","from":"/b"}],"subresource":"scale"}`, "json scale of " + own, `[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"move","path":"/a","from":"/b"}]`},
		{
			`{"apply":{"spec":{"replicas":9007199254740993}}}`, "apply " + own,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1"},"spec":{"replicas":9007199254740993}}`,
		},
		{`{"apply":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}}`, "apply v1/Pod p", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`},
		{`{"create":{"apiVersion":"a.b/v1","kind":"X","metadata":{"name":"p","namespace":"n"}}}`, "create a.b/v1/X n/p", `{"apiVersion":"a.b/v1","kind":"X","metadata":{"name":"p","namespace":"n"}}`},
		{`{"delete":{"propagation":"foreground","gracePeriodSeconds":0}}`, "delete " + own, `{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"uid":"u1"},"propagationPolicy":"Foreground"}`},
		{`{"delete":{},"target":{"resource":"v1/pods","namespace":"n","name":"p"}}`, "delete v1/pods n/p", `{"apiVersion":"v1","kind":"DeleteOptions"}`},
		{
			`{"evict":{},"target":{"resource":"v1/pods","namespace":"n","name":"p","uid":"u"}}`, "evict v1/pods n/p",
			`{"apiVersion":"policy/v1","deleteOptions":{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"}},"kind":"Eviction","metadata":{"name":"p","namespace":"n"}}`,
		},
	} {
		ops, err := parse(deltaEvent(t, c.data))
		if err != nil || len(ops) != 1 {
			t.Errorf("%s: %v", c.data, err)
			continue
		}
		must.Report(t, ops[0].complete())
		body := string(ops[0].body)
		switch ops[0].verb {
		case verbDelete:
			body = string(encode(ops[0].deleteOptions(false)))
		case verbEvict:
			body = string(ops[0].eviction())
		}
		if got := ops[0].String(); got != c.want || body != c.body {
			t.Errorf("%s: %s\n%s, want %s\n%s", c.data, got, body, c.want, c.body)
		}
	}
	if ops, err := parse(deltaEvent(t, `[]`)); err != nil || len(ops) != 0 {
		t.Errorf("an empty list: %v %v", ops, err)
	}
}

// TestParseMistakes: each mistake is reported with its position, without values.
func TestParseMistakes(t *testing.T) {
	// Guarantee: kubernetes-allow
	for data, want := range map[string]string{
		`{}`:     "data: says none of apply, create, merge, json, delete, evict, event",
		`null`:   "data: must be an object",
		`"text"`: "data: must be an object",
		`{"op":"added","object":{"metadata":{"name":"s3cret"}}}`: "this is the delta itself: give the route an emit",
		`{"mrege":{}}`:             `mrege is none; did you mean "merge"?`,
		`{"merge":{},"delete":{}}`: "data: says both merge and delete",
		`{"Merge":{}}`:             `Merge is none; did you mean "merge"?`,
		`{"merge":{},"tagret":{}}`: `data.tagret: unknown key; did you mean "target"?`,
		`[{"merge":{}},{"delete":{},"missing":"ignore"}]`: "data[1].missing: unknown key",
		`[{"merge":{}},7]`:                                                         "data[1]: must be an object",
		`{"merge":[]}`:                                                             "data.merge: must be an object",
		`{"merge":{"metadata":"s3cret"}}`:                                          "metadata: must be an object",
		`{"merge":{},"target":{}}`:                                                 "data.target: name is missing",
		`{"merge":{},"target":{"name":"a"}}`:                                       "data.target: resource is missing",
		`{"merge":{},"target":{"name":"a","resource":"pods"}}`:                     "data.target.resource: must be [group/]version/resource",
		`{"merge":{},"target":{"name":"a","resource":"v1/pods/status"}}`:           "data.target.resource: names a subresource",
		`{"merge":{},"target":{"name":"../s3cret","resource":"v1/pods"}}`:          "data.target.name: cannot be the name",
		`{"merge":{},"target":{"name":"a","namespace":"..","resource":"v1/pods"}}`: "data.target.namespace: cannot be the namespace",
		`{"merge":{},"target":{"name":7,"resource":"v1/pods"}}`:                    "data.target.name: must be text",
		`{"merge":{},"target":{"nmae":"a","resource":"v1/pods"}}`:                  `data.target.nmae: unknown key; did you mean "name"?`,
		`{"merge":{},"target":null}`:                                               "data.target: must be an object",
		`{"merge":{},"subresource":"log"}`:                                         "data.subresource: must be one of status, scale",
		`{"apply":{},"subresource":"scale"}`:                                       "data.subresource: must be one of status",
		`{"create":{"apiVersion":"v1","kind":"Pod"},"subresource":"status"}`:       "data.subresource: unknown key",
		`{"merge":{},"missing":true}`:                                              "data.missing: must be one of ignore, reject",
		`{"apply":{"kind":"Pod"}}`:                                                 "data.apply.apiVersion: is missing",
		`{"apply":{"apiVersion":"v1","kind":"Pod"}}`:                               "data.apply.metadata.name: is missing",
		`{"apply":{"apiVersion":"a/b/c","kind":"Pod","metadata":{"name":"x"}}}`:    "data.apply.apiVersion: must be v1 or group/version",
		`{"apply":{"metadata":{"namespace":"x"}}}`:                                 "data.apply.apiVersion: is missing",
		`{"create":{}}`: "data.create.apiVersion: is missing",
		`{"create":{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"s3cret"}}}`: "data.create.metadata.generateName: each repetition",
		`{"json":{}}`: "data.json: must be a list",
		`{"json":[{"op":"add","path":"/s3cret"}]}`:      "data.json[0]: value is missing",
		`{"json":[{"op":"put","path":"/a","value":1}]}`: "data.json[0].op: must be one of add",
		`{"json":[{"op":"move","path":"/a"}]}`:          "data.json[0]: from is missing",
		`{"json":[{"op":"remove","paht":"/a"}]}`:        "data.json[0].paht: unknown key",
		`{"delete":true}`:                               "data.delete: must be an object",
		`{"delete":{"gracePeriodSeconds":-1}}`:          "data.delete.gracePeriodSeconds: must be a whole number",
		`{"delete":{"gracePeriodSeconds":null}}`:        "data.delete.gracePeriodSeconds: must be a whole number",
		`{"delete":{"propagation":"Orphan"}}`:           "data.delete.propagation: must be one of background, foreground, orphan",
		`{"evict":{}}`:                                  "data.evict: only v1/pods can be evicted, not apps/v1/deployments",
		`{"event":{}}`:                                  "data.event: reason is missing",
		`{"event":{"reason":"R","type":"Error"}}`:       "data.event.type: must be one of Normal, Warning",
		`{"event":{"reason":"R","message":"m"}}`:        "data.event.message: unknown key",
	} {
		_, err := parse(deltaEvent(t, data))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
	if _, err := parse(deltaEvent(t, "["+strings.Repeat(`{"delete":{}},`, maxOperations)+`{"delete":{}}]`)); err == nil || !strings.Contains(err.Error(), "has 1001 operations") {
		t.Error(err)
	}
	e := deltaEvent(t, `{"merge":{}}`)
	e.Of = nil
	if _, err := parse(e); err == nil || !strings.Contains(err.Error(), "needs a target") {
		t.Error(err)
	}
}

// TestWithoutValues: values are removed from messages of the API server about fields.
func TestWithoutValues(t *testing.T) {
	// Guarantee: kubernetes-no-values
	for message, want := range map[string]string{
		`Invalid value: "s3cret \" x: y": must be a b`:            "Invalid value: must be a b",
		`Invalid value: -1: must be 0`:                            "Invalid value: must be 0",
		`Invalid value: {"a":"s3cret"}: no: really`:               "Invalid value: really",
		`Unsupported value: "s3cret": supported values: "a", "b"`: `Unsupported value: supported values: …, …`,
		`Required value: name it`:                                 "Required value: name it",
		`strict decoding error: unknown field "spec.x"`:           `strict decoding error: unknown field "spec.x"`,
		`.a: expected string, got &{s3cret}`:                      ".a: expected string",
	} {
		if got := withoutQuotes(withoutValue(message)); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

// FuzzParse: any data is rejected, or yields operations with bodies in JSON and targets with names.
// An error quotes keys only.
func FuzzParse(f *testing.F) {
	for _, data := range []string{
		`{"merge":{"metadata":{"x":1}},"target":{"resource":"v1/pods","namespace":"n","name":"p","uid":"u"},"missing":"ignore"}`, `[{"json":[{"op":"add","path":"/a","value":1}]}]`,
		`{"apply":{"spec":{}}}`, `{"create":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n"}}}`, `{"delete":{"gracePeriodSeconds":1}}`, `{"event":{"reason":"R","note":"é"}}`,
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if !json.Valid([]byte(data)) {
			return
		}
		e := deltaEvent(t, data)
		ops, err := parse(e)
		if err != nil {
			return
		}
		for i := range ops {
			op := &ops[i]
			must.Succeed(t, op.complete())
			if op.body != nil && !json.Valid(op.body) || !json.Valid(op.event(e, "n", "i", "id")) || !json.Valid(encode(op.deleteOptions(true))) {
				t.Fatalf("%s: a body is no JSON", op)
			}
			if strings.ContainsAny(op.target.name+op.target.namespace, "/%") || op.target.name == "" || op.target.name == ".." || op.target.namespace == ".." {
				t.Fatalf("the target is %q", op.target)
			}
		}
	})
}
