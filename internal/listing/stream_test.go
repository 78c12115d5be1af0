package listing

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestStream shows that the rows of a table wait for Flush and keep the widths of the columns, and
// that the other formats print each object by itself at once.
func TestStream(t *testing.T) {
	born := time.Now().Add(-75 * time.Hour).Format(time.RFC3339)
	pod := func(name, version string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"%s","namespace":"ns","resourceVersion":%q,"creationTimestamp":%q}}`, name, version, born))
	}
	const flush = "flush"
	for _, c := range []struct {
		format string
		events bool
		do     []string // objects, as TYPE NAME VERSION, or flush
		want   string
	}{
		{"table", false, nil, ""},
		{"table", false, []string{flush, "ADDED a 1"}, ""},
		{"table", false, []string{"ADDED a 1", "ADDED long-name 22", flush, "MODIFIED a 333", flush, "DELETED a-longer-name 4", flush, "ADDED b 5", flush}, `
NAMESPACE  NAME       AGE   VERSION
ns         a          3d3h  1
ns         long-name  3d3h  22
ns         a          3d3h  333
ns         a-longer-name  3d3h  4
ns         b              3d3h  5
`},
		{"table", true, []string{flush, "ADDED a 1", flush, "MODIFIED a 2", flush, "DELETED a 3", flush}, `
EVENT     NAMESPACE  NAME  AGE   VERSION
ADDED     ns         a     3d3h  1
MODIFIED  ns         a     3d3h  2
DELETED   ns         a     3d3h  3
`},
		{"wide", true, []string{`ADDED a\u001b[2J\nx 1`, flush}, `
EVENT     NAMESPACE  NAME           AGE   VERSION  UID  CONTROLLER  LABELS
ADDED     ns         a\u001b[2J\nx  3d3h  1        -    -           -
`},
		{"name", false, []string{"ADDED a 1", "DELETED a 2"}, "ns/a\nns/a\n"},
		{"name", true, []string{"ADDED a 1", "DELETED a 2"}, "ADDED ns/a\nDELETED ns/a\n"},
		{"jsonpath={.metadata.name}", false, []string{"ADDED a 1", "DELETED b 2"}, "a\nb\n"},
		{`jsonpath={.metadata.name}{"\n"}`, false, []string{"ADDED a 1", "DELETED b 2"}, "a\nb\n"},
		{"jsonpath={.type} {.object.metadata.name}", true, []string{"ADDED a 1", "DELETED b 2"}, "ADDED a\nDELETED b\n"},
		{"yaml", false, []string{"ADDED a 1", "DELETED a 2"}, fmt.Sprintf(`
kind: Pod
metadata:
  creationTimestamp: %[1]q
  name: a
  namespace: ns
  resourceVersion: "1"
---
kind: Pod
metadata:
  creationTimestamp: %[1]q
  name: a
  namespace: ns
  resourceVersion: "2"
`, born)},
		{"yaml", true, []string{"DELETED a 2"}, fmt.Sprintf(`
object:
  kind: Pod
  metadata:
    creationTimestamp: %[1]q
    name: a
    namespace: ns
    resourceVersion: "2"
type: DELETED
`, born)},
		{"json", false, []string{"ADDED a 1", "DELETED a 2"}, strings.Repeat(fmt.Sprintf(`
{
  "kind": "Pod",
  "metadata": {
    "name": "a",
    "namespace": "ns",
    "resourceVersion": "%%d",
    "creationTimestamp": %q
  }
}`, born), 2) + "\n"},
		{"json", true, []string{"MODIFIED a 2"}, fmt.Sprintf(`
{
  "object": {
    "kind": "Pod",
    "metadata": {
      "name": "a",
      "namespace": "ns",
      "resourceVersion": "2",
      "creationTimestamp": %q
    }
  },
  "type": "MODIFIED"
}
`, born)},
	} {
		t.Run(fmt.Sprint(c.format, c.events, len(c.do)), func(t *testing.T) {
			if c.format == "json" && !c.events {
				c.want = fmt.Sprintf(c.want, 1, 2)
			}
			var out strings.Builder
			s, err := NewStream(&out, c.format, c.events)
			must.Succeed(t, err)
			n := 0
			for _, do := range c.do {
				if do == flush {
					must.Succeed(t, s.Flush())
					continue
				}
				kind, rest, _ := strings.Cut(do, " ")
				name, version, _ := strings.Cut(rest, " ")
				must.Succeed(t, s.Print(kind, pod(name, version)))
				n++
			}
			if want := strings.TrimPrefix(c.want, "\n"); out.String() != want || s.Len() != n {
				t.Errorf("%d objects, got\n%s\nwant\n%s", s.Len(), out.String(), want)
			}
		})
	}
}

// broken is a writer that fails.
type broken struct{}

// Write implements io.Writer.
func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe is closed") }

func TestStreamFails(t *testing.T) {
	for _, format := range []string{"tabel", "jsonpath={.a["} {
		_, err := NewStream(broken{}, format, false)
		must.Fail(t, err, format[:5])
	}
	item := json.RawMessage(`{"metadata":{"name":"a"}}`)
	for _, format := range []string{"table", "name", "json", "yaml", "jsonpath={.metadata.name}"} {
		for _, events := range []bool{false, true} {
			s, err := NewStream(broken{}, format, events)
			must.Succeed(t, err)
			if err = s.Print("ADDED", item); err == nil {
				err = s.Flush()
			}
			must.Fail(t, err, "the pipe is closed")
		}
	}
	s, err := NewStream(&strings.Builder{}, "jsonpath={.items[3]}", false)
	must.Succeed(t, err)
	must.Fail(t, s.Print("ADDED", json.RawMessage(`{"items":[1]}`)), "the JSONPath template does not fit an object")
	must.Fail(t, s.Print("ADDED", json.RawMessage(`{`)), "an object of the answer is no JSON")
}
