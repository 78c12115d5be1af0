package deltarouter_test

import (
	"encoding/json"
	"errors"
	"testing"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

func TestPath(t *testing.T) {
	d := deltarouter.Delta{
		Object: []byte(` {"metadata" : {"labels":{"a.b/c":"x","tru\u0065":true}, "n":-12},
			"":{"":3}, "list":[{"a":1}, "b" ], "text":"\"\u00e9", "back\\slash":1}`),
		OldObject: []byte(`{"metadata":{"n":7}}`),
	}
	tests := []struct{ path, want string }{
		{"metadata.n", "-12"},
		{`metadata.labels.a\.b/c`, `"x"`},
		{"metadata.labels.a.b/c", ""},
		{"metadata.labels.true", "true"},
		{"metadata.labels.tru\\e", "true"},
		{".", "3"},
		{"", `{"":3}`},
		{"list", `[{"a":1}, "b" ]`},
		{"list.a", ""},
		{"text", `"\"\u00e9"`},
		{"text.x", ""},
		{`back\\slash`, "1"},
		{`back\`, ""},
		{"none.x", ""},
	}
	for _, tt := range tests {
		if got := d.Path(tt.path); string(got) != tt.want {
			t.Errorf("%q: got %s, want %s", tt.path, got, tt.want)
		}
	}
	if got := string(d.OldPath("metadata.n")); got != "7" {
		t.Errorf("got %s of the old object", got)
	}
	if got := (deltarouter.Delta{}).OldPath("a"); got != nil {
		t.Errorf("got %s of no object", got)
	}
}

func TestValue(t *testing.T) {
	d := deltarouter.Delta{Object: []byte(`{"n":-12,"big":9223372036854775808,"f":1.5,"s":"\"\u00e9","plain":"x","t":true,"l":[{"a":1},"b"]}`)}
	if n, ok := d.Path("n").Int(); n != -12 || !ok {
		t.Errorf("got %d %t", n, ok)
	}
	for _, path := range []string{"big", "f", "s", "none"} {
		if n, ok := d.Path(path).Int(); ok || n != 0 {
			t.Errorf("%s: got the number %d", path, n)
		}
	}
	if got := d.Path("s").Text() + d.Path("plain").Text() + d.Path("n").Text() + d.Path("none").Text(); got != `"éx` {
		t.Errorf("got %q", got)
	}
	// Beyond 2^53 it depends on the type that a value is decoded into.
	var known struct{ N int64 }
	var number json.Number
	var untyped any
	large := deltarouter.Delta{Object: []byte(`{"n":9007199254740993}`)}
	if err := errors.Join(deltarouter.Value(large.Object).Decode(&known), large.Path("n").Decode(&number), large.Path("n").Decode(&untyped)); err != nil {
		t.Error(err)
	}
	if n, ok := large.Path("n").Int(); !ok || n != 9007199254740993 || known.N != n || number != "9007199254740993" || untyped != 9007199254740992.0 {
		t.Errorf("got %d %t, %d, %s and %v", n, ok, known.N, number, untyped)
	}
	if !d.Path("t").IsTrue() || d.Path("s").IsTrue() {
		t.Error("only t is true")
	}
	items := d.Path("l").Items()
	if len(items) != 2 || string(items[0].Path("a")) != "1" || items[1].Text() != "b" || d.Path("s").Items() != nil {
		t.Errorf("got %s", items)
	}
	var f float64
	if err := d.Path("f").Decode(&f); err != nil || f != 1.5 {
		t.Errorf("got %v %v", f, err)
	}
	got, err := json.Marshal(deltarouter.Event{Data: map[string]any{"l": d.Path("l"), "none": d.Path("none")}})
	if want := `{"data":{"l":[{"a":1},"b"],"none":null}}`; err != nil || string(got) != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}
