package fields_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestParse(t *testing.T) {
	const form = ` is not a path: write keys with dots between them, as in status.phase or metadata.labels["app.kubernetes.io/name"]`
	for _, tt := range []struct{ path, want, err string }{
		{"data", "data", ""},
		{"status.phase", "status|phase", ""},
		{"x-y_z.A1", "x-y_z|A1", ""},
		{`metadata.labels["app.kubernetes.io/name"]`, "metadata|labels|app.kubernetes.io/name", ""},
		{`metadata.labels['a"]'].b`, `metadata|labels|a"]|b`, ""},
		{`data["a b"]["c"].d`, "data|a b|c|d", ""},
		{"", "", "is empty: write a path such as status.phase, or remove the entry"},
		{".", "", `"."` + form},
		{".status", "", `".status"` + form},
		{"status.", "", `"status."` + form},
		{"status..phase", "", `"status..phase"` + form},
		{"$.status", "", `"$.status"` + form},
		{"/status/phase", "", `"/status/phase"` + form},
		{"status phase", "", `"status phase"` + form},
		{`metadata.labels.a\.b`, "", `"metadata.labels.a\\.b"` + form},
		{`["status"]`, "", `"[\"status\"]"` + form},
		{`data[""]`, "", `"data[\"\"]"` + form},
		{`data["a"]b`, "", `"data[\"a\"]b"` + form},
		{`data["a'].b`, "", `"data[\"a'].b"` + form},
		{`data[a]`, "", `"data[a]"` + form},
		{`data[`, "", `"data["` + form},
		{`data.["a"]`, "", `"data.[\"a\"]"` + form},
		{"spec.containers[0].image", "", `"spec.containers[0].image": a path has no index: it continues in every element of a list, as in spec.containers.image`},
		{"spec.containers[*]", "", `"spec.containers[*]": a path has no index: it continues in every element of a list, as in spec.containers.image`},
		{"spec.containers[]", "", `"spec.containers[]": a path has no index: it continues in every element of a list, as in spec.containers.image`},
		{strings.Repeat("a", 1025), "", "a path has 1025 bytes, at most 1024 are possible"},
	} {
		keys, err := fields.Parse(tt.path)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got := strings.Join(keys, "|"); got != tt.want || message != tt.err {
			t.Errorf("%s: got %q, %v\nwant %q, %s", tt.path, got, err, tt.want, tt.err)
		}
	}
}

// TestProblems: each mistake of a list is reported with its position.
func TestProblems(t *testing.T) {
	many := "[" + strings.Repeat("a, ", 256) + "b]"
	for _, tt := range []struct {
		list string
		want []string
	}{
		{"[status, status.phase, metadata.labels, spec.nodeName]", nil},
		{"status.phase", nil},
		{"[]", nil},
		{`[a, "", b.c, a., b.c]`, []string{"1:14: fields[1]: is empty", `1:23: fields[3]: "a." is not a path`, `1:27: fields[4]: "b.c" occurs twice: remove one`}},
		{`[a.b, 'a["b"]']`, []string{`1:16: fields[1]: "a[\"b\"]" occurs twice`}},
		{many, []string{"1:779: fields[256]: there are 257 fields, at most 256 are possible"}},
	} {
		node := plugintest.Node(t, "{fields: "+tt.list+"}")
		var paths []string
		if problems := node.At("fields").Decode(&paths); problems != nil {
			t.Fatal(problems)
		}
		problems := fields.Problems(node, paths)
		for i := range max(len(problems), len(tt.want)) {
			if i >= len(problems) || i >= len(tt.want) || !strings.Contains(problems[i].Error(), tt.want[i]) {
				t.Errorf("%.40s: got %v, want %q", tt.list, problems, tt.want)
				break
			}
		}
		if _, err := fields.New(paths); (err == nil) != (tt.want == nil) {
			t.Errorf("%.40s: New returns %v", tt.list, err)
		}
	}
}

// TestBatch shows the deltas that a handler with fields gets.
func TestBatch(t *testing.T) {
	// Guarantee: handler-fields
	set, err := fields.New([]string{"status.phase", `metadata.labels["a.b/c"]`, "spec.containers.image", "data"})
	must.Succeed(t, err)
	pod := plugintest.Object(t, `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"a.b/c":"x","d":"y"},"annotations":{"z":"w"},"name":"p","namespace":"n","uid":"u","resourceVersion":"7","generation":3},
		"spec":{"containers":[{"name":"a","image":"i"},{"name":"b"}],"nodeName":"m"},"status":{"conditions":[],"phase":"Running","podIP":"1"},"other":1}`)
	const podText = `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"a.b/c":"x"},"name":"p","namespace":"n","uid":"u","resourceVersion":"7"},"spec":{"containers":[{"image":"i"},{}]},"status":{"phase":"Running"}}`
	young := plugintest.Object(t, `{"metadata":{"name":"p","labels":null},"status":{}}`)
	const youngText = `{"metadata":{"name":"p","labels":null},"status":{}}`
	secret := plugintest.Object(t, `{"apiVersion":"v1","kind":"Secret","data":{"k":"djE="},"metadata":{"name":"s","namespace":"n"},"type":"Opaque"}`)
	const secretText = `{"apiVersion":"v1","kind":"Secret","data":{"k":"djE="},"metadata":{"name":"s","namespace":"n"}}`
	identity := event.Identity(pod.Resource(), event.Key{Namespace: "n", Name: "gone"}, "u")
	text := func(o *event.Object) string {
		if o == nil {
			return ""
		}
		return string(o.JSON())
	}
	batch := []*event.Delta{
		{Op: event.Updated, Source: "pods", New: pod, Old: young, Suppressed: 3, With: []byte("{}")},
		{Op: event.Added, New: young},
		{Op: event.Deleted, Old: pod},
		{Op: event.Updated, New: secret},
		{Op: event.Deleted, Old: identity},
	}
	want := [][2]string{{podText, youngText}, {youngText, ""}, {"", podText}, {secretText, ""}, {"", text(identity)}}
	given := slices.Clone(batch)
	got := set.Batch(batch)
	for i, d := range got {
		if text(d.New) != want[i][0] || text(d.Old) != want[i][1] {
			t.Errorf("%d: got  %s %s\nwant %s", i, text(d.New), text(d.Old), want[i])
		}
		if !d.Object().Same(batch[i].Object()) || d.Object().Resource() != batch[i].Object().Resource() || d.Op != batch[i].Op {
			t.Errorf("%d: it is another object: %s", i, d)
		}
		if err := rawjson.Check(text(d.Object())); err != nil {
			t.Error(i, err)
		}
	}
	if d := got[0]; d.Source != "pods" || d.Suppressed != 3 || string(d.With) != "{}" {
		t.Errorf("the delta lost members: %+v", d)
	}
	if !slices.Equal(given, batch) || batch[0].New != pod || batch[0].Old != young {
		t.Error("the batch was modified")
	}
}

// TestWholeObjects: without fields a handler gets the deltas themselves.
func TestWholeObjects(t *testing.T) {
	set, err := fields.New(nil)
	if err != nil || set != nil || set.Paths() != nil {
		t.Fatal(set, err)
	}
	batch := plugintest.Deltas(t)
	if got := set.Batch(batch); &got[0] != &batch[0] {
		t.Error("the batch was copied")
	}
}

// TestLargeBatch: the texts of earlier objects stay as they were while the memory for texts grows.
func TestLargeBatch(t *testing.T) {
	set, err := fields.New([]string{"x"})
	must.Succeed(t, err)
	var batch []*event.Delta
	for i := range 50 {
		batch = append(batch, &event.Delta{Op: event.Updated, New: plugintest.Pod(t, "p", i+1, 100*i), Old: plugintest.Pod(t, "p", i, 70*i)})
	}
	for i, d := range set.Batch(batch) {
		if string(d.New.JSON()) != string(batch[i].New.JSON()) || string(d.Old.JSON()) != string(batch[i].Old.JSON()) {
			t.Errorf("%d: got %s", i, d.New.JSON())
		}
	}
}
