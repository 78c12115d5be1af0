package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// decodeObject decodes a text like the item of a list.
func decodeObject(format *Format, resource *event.Resource, text string) (*event.Object, error) {
	d := NewDecoder(format, resource)
	end, spans, err := d.finder.Scan(text, 0)
	if err != nil {
		return nil, err
	}
	return d.object(text, len(text)-len(strings.TrimLeft(text, " \t\r\n")), end, spans)
}

// The decoder agrees with client-go's unstructured on every object in the test data of k8s.io/api.
func TestAgreement(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal("the module k8s.io/api is not at hand:", err)
	}
	n := 0
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "testdata"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		n++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checkAgreement(t, path, string(data))
		return nil
	})
	if err != nil || n < 500 {
		t.Error(n, "files,", err)
	}
}

func checkAgreement(t *testing.T, path, text string) {
	t.Helper()
	want := &unstructured.Unstructured{}
	err := want.UnmarshalJSON([]byte(text))
	if err != nil || want.GetName() == "" || want.IsList() {
		if _, err := decodeObject(&Format{}, podResource(), text); err == nil && !want.IsList() {
			t.Errorf("%s: decoded, though it has no name", path)
		}
		return
	}
	unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
	delete(want.Object, "status")
	o, err := decodeObject(&Format{Drop: [][]string{{"metadata", "managedFields"}, {"status"}}}, podResource(), text)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	got := &unstructured.Unstructured{}
	if err := got.UnmarshalJSON(o.JSON()); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if !reflect.DeepEqual(got.Object, want.Object) {
		t.Errorf("%s: content differs", path)
	}
	m := o.GetObjectMeta()
	identity := []string{m.GetName(), m.GetNamespace(), string(m.GetUID()), m.GetResourceVersion(), o.GetObjectKind().GroupVersionKind().String()}
	wanted := []string{want.GetName(), want.GetNamespace(), string(want.GetUID()), want.GetResourceVersion(), want.GroupVersionKind().String()}
	if !reflect.DeepEqual(identity, wanted) || !reflect.DeepEqual(o.Labels(), want.GetLabels()) ||
		!reflect.DeepEqual(m.GetAnnotations(), want.GetAnnotations()) || !m.GetCreationTimestamp().Time.Equal(want.GetCreationTimestamp().Time) {
		t.Errorf("%s: identity %v, want %v", path, identity, wanted)
	}
}

// TestPlaces: the decoder's places in an object are those that a search finds.
func TestPlaces(t *testing.T) {
	const front, status = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[{"status":1}]},"spec":{"status":2}`, `"status" : {"a":1, "status":{"b":2},"c":3}`
	texts := []string{
		front + "}", front + "," + status + "}", front + "," + status + " }", front + ` , ` + status + `,"z":{"status":4}}`,
		front + `,"st\u0061tus":"x"}`, front + `,"status":null}`, front + `,"status":[]}`, `{` + status + `,"metadata":{"name":"a"}}`, `{"metadata":{"name":"a"},` + status + `}`,
	}
	formats := map[string]*Format{
		"all": {}, "managedFields": {Drop: [][]string{{"metadata", "managedFields"}}}, "status": {Drop: [][]string{{"status"}}},
		"first of the status": {Drop: [][]string{{"status", "a"}}}, "last of the status": {Drop: [][]string{{"status", "c"}}},
		"behind": {Drop: [][]string{{"z"}}}, "several": {Drop: [][]string{{"metadata", "managedFields"}, {"spec"}, {"status", "status"}, {"z"}}},
		"of the spec": {Drop: [][]string{{"spec", "status"}}}, "metadata": {MetadataOnly: true},
	}
	for name, format := range formats {
		for _, text := range texts {
			o, err := decodeObject(format, podResource(), text)
			must.Succeed(t, err)
			for _, key := range []string{"spec", "status"} {
				if got, want := o.Member(key), rawjson.Member(string(o.JSON()), key); got != want {
					t.Errorf("%s: %s: the %s is %s, want %s", name, o.JSON(), key, got, want)
				}
			}
		}
	}
}

// TestUsualPlaces: the places of the usual object are known, so that no search is necessary.
func TestUsualPlaces(t *testing.T) {
	data, err := os.ReadFile("testdata/pod.json")
	must.Succeed(t, err)
	o, err := decodeObject(&Format{Drop: [][]string{{"metadata", "managedFields"}}}, podResource(), string(data))
	must.Succeed(t, err)
	for _, key := range []string{"spec", "status"} {
		if open := o.Place(key); open == "" || open != rawjson.Member(string(o.JSON()), key) {
			t.Errorf("the place of the %s: %s", key, open)
		}
	}
}

// TestStatusTwice: there is one status to index, because an object with two is not decoded.
func TestStatusTwice(t *testing.T) {
	for _, second := range []string{`"status"`, `"st\u0061tus"`, `"\u0073tatus"`} {
		for _, members := range []string{`"status":{"a":1},` + second + `:2`, second + `:2,"status":{"a":1}`} {
			if o, err := decodeObject(&Format{}, podResource(), `{"metadata":{"name":"a"},`+members+`}`); err == nil {
				t.Errorf("decoded: %s", o.JSON())
			}
		}
	}
}

// FuzzObject: a kept object has the values that encoding/json reads, less the dropped ones.
func FuzzObject(f *testing.F) {
	data, err := os.ReadFile("testdata/pod.json")
	must.Succeed(f, err)
	f.Add(string(data))
	f.Add(`{"metadata":{"managedFields":{},"name":"a"},"status":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		format := &Format{Drop: [][]string{{"metadata", "managedFields"}, {"status"}}}
		o, err := decodeObject(format, podResource(), text)
		if err != nil {
			return
		}
		must.Succeed(t, rawjson.Check(string(o.JSON())))
		if whole, err := decodeObject(&Format{}, podResource(), text); err == nil {
			for _, key := range []string{"spec", "status"} {
				if got := whole.Member(key); got != rawjson.Member(string(whole.JSON()), key) {
					t.Fatalf("another %s: %s", key, got)
				}
			}
		}
		want, ok := decodeJSON(t, text).(map[string]any)
		if !ok {
			t.Fatal("not an object")
		}
		delete(want, "status")
		remove(want["metadata"], "managedFields")
		for key, value := range map[string]any{"apiVersion": "v1", "kind": "Pod"} {
			if _, ok := want[key]; !ok {
				want[key] = value
			}
		}
		if got := decodeJSON(t, string(o.JSON())); !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("%s became %s", text, o.JSON())
		}
	})
}

func remove(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, key)
	case []any:
		for _, elem := range v {
			remove(elem, key)
		}
	}
}

func decodeJSON(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		// Dropped values are not checked, so the text may be no JSON.
		t.Skip()
	}
	return v
}

func readList(text string, whole, ahead bool) (list runtime.Object, bad []string, err error) {
	body := iotest.OneByteReader(strings.NewReader(text))
	if whole {
		body = strings.NewReader(text)
	}
	leftOut := func(e *ObjectError) runtime.Object {
		bad = append(bad, e.Error())
		return e.Placeholder(podResource())
	}
	listing := NewListing(podFormat(), podResource(), NewStream(body, func() {}), leftOut)
	if ahead {
		listing.long = 1
	}
	l, err := listing.Read()
	if err != nil {
		return nil, bad, err
	}
	return l, bad, nil
}

func TestList(t *testing.T) {
	const items = `[{"metadata":{"name":"a","resourceVersion":"1"}}, {"metadata":{"name":"b","resourceVersion":"2"},"x":{"y":1,"y":2}},{"spec":null},
		{"kind":"Pod","apiVersion":"v1","metadata":{"name":"c","resourceVersion":"3"}}]`
	for _, text := range []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"c","remainingItemCount":5},"items":` + items + `}`,
		` { "items" : ` + items + ` , "metadata" : {"resourceVersion":"9","continue":"c","remainingItemCount":5}, "x":[1,{}], "y":1.5 } `,
	} {
		for how := range 4 {
			list, bad, err := readList(text, how&1 == 0, how&2 == 0)
			must.Succeed(t, err)
			m, err := meta.ListAccessor(list)
			if err != nil || m.GetResourceVersion() != "9" || m.GetContinue() != "c" || *m.GetRemainingItemCount() != 5 {
				t.Errorf("metadata %+v, %v", m, err)
			}
			objects, err := meta.ExtractListWithAlloc(list)
			if err != nil || len(objects) != 3 {
				t.Fatalf("%d objects, %v", len(objects), err)
			}
			if got := string(objects[0].(*event.Object).JSON()); got != `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}` {
				t.Error(got)
			}
			if p, ok := objects[1].(Placeholder); !ok || p.Key().Name != "b" || p.ResourceVersion() != "2" {
				t.Errorf("no placeholder: %v", objects[1])
			}
			if len(bad) != 2 || !strings.HasPrefix(bad[0], "b: ") || !strings.Contains(bad[1], "metadata.name") {
				t.Errorf("bad: %q", bad)
			}
		}
	}
}

func TestBadLists(t *testing.T) {
	for _, text := range []string{
		``, `{`, `[]`, `{"items":[`, `{"items":[{}`, `{"items":[{"metadata":{"name":"a"}}]`, `{"kind":"Status"}`, `{"items":[}]}`,
		`{"items":[] "x":1}`, `<html>`, `{"items":[],"metadata":1}`, `{"items" []}`, `{"items":[{"metadata":{"name":"a"}} {}]}`,
	} {
		for _, ahead := range []bool{true, false} {
			if _, _, err := readList(text, true, ahead); err == nil {
				t.Errorf("%s: no error", text)
			}
		}
	}
	if list, _, err := readList(`{"items":null,"metadata":{"resourceVersion":"1"}}`, false, false); err != nil || meta.LenList(list) != 0 {
		t.Error(err)
	}
}

// FuzzList: the result does not depend on the sizes of the reads nor on the cores, and its items
// are those that encoding/json finds.
func FuzzList(f *testing.F) {
	f.Add(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","resourceVersion":"1"}},{"metadata":{"name":"b"},"x":"\u0041"}]}`)
	f.Add(`{"items":[],"metadata":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		list, bad, err := readList(text, true, false)
		again, badAgain, errAgain := readList(text, false, true)
		if (err == nil) != (errAgain == nil) || len(bad) != len(badAgain) || err == nil && meta.LenList(list) != meta.LenList(again) {
			t.Fatalf("whole: %v, %q\nin pieces: %v, %q", err, bad, errAgain, badAgain)
		}
		var want struct{ Items []json.RawMessage }
		if err != nil || len(bad) > 0 || !json.Valid([]byte(text)) || rawjson.Check(text) != nil || json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		if strings.Count(strings.ToLower(text), `"items"`) == 1 && meta.LenList(list) != len(want.Items) {
			t.Fatalf("%d items, want %d", meta.LenList(list), len(want.Items))
		}
	})
}

func TestExtent(t *testing.T) {
	for text, want := range map[string]int{`{"a":"}"} x`: 9, `"a\"b"`: 6, `12,`: 2, `[[1],"]"]]`: 9, `true}`: 4, `{"a":`: 0, `12`: 0} {
		var e extent
		n, done, err := e.feed([]byte(text))
		if n != want || done != (want > 0) || err != nil {
			t.Errorf("%s: %d, %v, %v", text, n, done, err)
		}
	}
	for _, text := range []string{"<", "}", "{\"a\nb\"", "x"} {
		var e extent
		if _, _, err := e.feed([]byte(text)); !errors.Is(err, ErrNotJSON) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	data, err := os.ReadFile("testdata/pod.json")
	must.Succeed(b, err)
	frame := append(append([]byte(`{"type":"MODIFIED","object":`), bytes.TrimSpace(data)...), "}\n"...)
	f := NewFrames(podFormat(), podResource(), NewStream(&endless{text: frame}, func() {}))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParts decodes pods of 5 KB that arrive in parts of 2 KB, as an API server sends them, in
// one goroutine and on all cores. cpu compares with the CPU for pods that arrive at once.
func BenchmarkParts(b *testing.B) {
	data, err := os.ReadFile("testdata/pod.json")
	must.Succeed(b, err)
	frame := append(append([]byte(`{"type":"ADDED","object":`), bytes.TrimSpace(data)...), "}\n"...)
	read := func(body io.Reader, ahead bool) (used time.Duration) {
		f := NewFrames(podFormat(), podResource(), NewStream(body, func() {}))
		if ahead {
			f.Ahead()
			defer f.Close()
		}
		before := cpu(b)
		for range 10_000 {
			if _, err := f.Next(); err != nil {
				b.Fatal(err)
			}
		}
		return cpu(b) - before
	}
	for name, ahead := range map[string]bool{"one goroutine": false, "all cores": true} {
		b.Run(name, func(b *testing.B) {
			var whole, parts time.Duration
			for b.Loop() {
				whole += read(&endless{text: frame}, false)
				parts += read(&endless{text: frame, most: 2 << 10}, ahead)
			}
			b.ReportMetric(float64(parts)/float64(whole), "cpu")
			b.ReportMetric(float64(parts.Microseconds())/10_000/float64(b.N), "cpu-µs/pod")
		})
	}
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// endless repeats a text.
type endless struct {
	text []byte
	at   int
	most int // bytes of one read; 0: no limit
}

func (e *endless) Read(p []byte) (n int, err error) {
	if e.most > 0 {
		p = p[:min(len(p), e.most)]
	}
	for n < len(p) {
		k := copy(p[n:], e.text[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.text)
	}
	return n, nil
}
