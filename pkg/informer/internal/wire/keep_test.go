package wire

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestKeep shows the objects of a format that keeps some fields: their texts are the same in lists
// and watches, and do not share memory with the response.
func TestKeep(t *testing.T) {
	keep := rawjson.NewSelection()
	for _, path := range []string{"apiVersion", "kind", "metadata.name", "metadata.labels.a", "spec.list.x", "status.phase"} {
		keep.Add(strings.Split(path, ".")...)
	}
	resource := &event.Resource{Kind: "Thing"}
	resource.Version = "v1"
	for _, tt := range []struct{ name, text, want string }{
		{
			"of a watch", `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n","managedFields":[1],"labels":{"b":"2","a":"1"}},"spec":{"list":[{"x":1,"y":2},{}]},"status":{"phase":"p","other":1}}`,
			`{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n","labels":{"a":"1"}},"spec":{"list":[{"x":1},{}]},"status":{"phase":"p"}}`,
		},
		{
			"of a list", `{"metadata":{"name":"n","labels":{"b":"2","a":"1"}},"spec":{"list":[{"x":1,"y":2},{}]},"status":{"phase":"p","other":1}}`,
			`{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n","labels":{"a":"1"}},"spec":{"list":[{"x":1},{}]},"status":{"phase":"p"}}`,
		},
		{
			"dropped and kept", `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n"},"status":{"phase":"p"},"spec":{"list":null}}`,
			`{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n"},"status":{"phase":"p"},"spec":{"list":null}}`,
		},
		{
			"large", `{"metadata":{"name":"n"},"spec":{"pad":"` + strings.Repeat("x", bufferSize) + `"},"status":{"phase":"ü"}}`,
			`{"kind":"Thing","apiVersion":"v1","metadata":{"name":"n"},"spec":{},"status":{"phase":"ü"}}`,
		},
	} {
		d := NewDecoder(&Format{Keep: keep, Drop: [][]string{{"metadata", "managedFields"}}}, resource)
		var last *event.Object
		for range 2 { // the buffers are used again
			text := strings.Clone(tt.text)
			end, spans, err := d.finder.Scan(text, 0)
			if err != nil {
				t.Fatal(err)
			}
			o, err := d.object(text, 0, end, spans)
			if err != nil || string(o.JSON()) != tt.want || last != nil && string(last.JSON()) != tt.want {
				t.Errorf("%s: got %s, %v\nwant %s", tt.name, o.JSON(), err, tt.want)
			}
			last = o
		}
	}
}
