package app

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

func parse(t *testing.T, resource, text string) *event.Object {
	t.Helper()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	o, err := event.ParseObject(&event.Resource{GroupVersionResource: gvr}, text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRedacted: of a Secret nothing is left that its data could be made out from, and everything else is as it was.
func TestRedacted(t *testing.T) {
	const meta = `"metadata":{"name":"s","namespace":"ns","uid":"u","resourceVersion":"7"`
	for _, c := range []struct{ name, text, want string }{
		{"nothing to hide", `{` + meta + `},"type":"Opaque"}`, `{` + meta + `},"type":"Opaque"}`},
		{
			"data", `{` + meta + `},"data":{"a":"aHVudGVy","b\n":"aHVudGVy"},"type":"Opaque"}`,
			`{"data":{"a":"(redacted)","b\n":"(redacted)"},` + meta + `},"type":"Opaque"}`,
		},
		{
			"at the end, in both", ` { "stringData": {"a":"hunter"}, ` + meta + `}, "data": {"a":"hunter"} } `,
			`{"data":{"a":"(redacted)"},"stringData":{"a":"(redacted)"},  ` + meta + `}}`,
		},
		{
			"what was applied", `{` + meta + `,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter","b":"c"}}}`,
			`{` + meta + `,"annotations":{"b":"c"}}}`,
		},
		{"of another form", `{` + meta + `},"data":["hunter"]}`, `{"data":{},` + meta + `}}`},
		{"an escaped key", `{` + meta + `},"d\u0061ta":{"a":"hunter"}}`, `{"data":{"a":"(redacted)"},` + meta + `}}`},
		{"null", `{` + meta + `},"data":null}`, `{"data":{},` + meta + `}}`},
	} {
		o := redacted(parse(t, "secrets", c.text), shownAs)
		if got := string(o.JSON()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if err := rawjson.Check(string(o.JSON())); err != nil || o.ResourceVersion() != "7" || strings.Contains(string(o.JSON()), "hunter") {
			t.Errorf("%s: %v, %s", c.name, err, o.JSON())
		}
		other := parse(t, "configmaps", c.text)
		if redacted(other, shownAs) != other {
			t.Errorf("%s: of a ConfigMap something is hidden", c.name)
		}
	}
}
