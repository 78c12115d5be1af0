package manifest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestToJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{\"a\": 1}\n", `{"a": 1}`},
		{"\ufeff {broken", "neither YAML nor JSON"},
		{"{a: 1, b: [c]}", `{"a":1,"b":["c"]}`},
		{"---\na: ${HOME}\nb: 9007199254740993\nc: \"on\"\nd: 2024-01-01T00:00:00Z\n", `{"a":"${HOME}","b":9007199254740993,"c":"on","d":"2024-01-01T00:00:00Z"}`},
		{"a: 1\n---\nb: 1\n", "several documents"},
		{"- a\n", "no mapping with"},
		{"", "no mapping with"},
		{"a: [", "neither YAML nor JSON"},
	} {
		got, err := manifest.ToJSON([]byte(c.text))
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), c.want) {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestObjects(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"# nothing\n---\n# here\n", ""},
		{"{\"a\": 1}\n", `{"a": 1}`},
		{"---\na: 1\n---\n# b\nb: 2\n", `{"a":1} {"b":2}`},
		{"kind: List\nitems:\n- {a: 1}\n- {b: 2}\n---\nc: 3\n", `{"a":1} {"b":2} {"c":3}`},
		{"\ufeff{\"kind\": \"PodList\", \"items\": []}", ""},
		{"kind: ColourList\n", `{"kind":"ColourList"}`},
		{"a: 1\n---\n- b\n", "no mapping with"},
		{"a: [", "neither YAML nor JSON"},
	} {
		objects, err := manifest.Objects([]byte(c.text))
		got := string(bytes.Join(objects, []byte(" ")))
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestToYAML(t *testing.T) {
	const object = `{"kind":"X","a":{"on":"yes","n":"012","big":9007199254740993,"text":"a\nb\n","list":[]}}`
	text, err := manifest.ToYAML([]byte(object))
	must.Succeed(t, err)
	if want := "a:\n  big: 9007199254740993\n  list: []\n  \"n\": \"012\"\n  \"on\": \"yes\"\n  text: |\n    a\n    b\nkind: X\n"; string(text) != want {
		t.Errorf("got %s", text)
	}
	back, err := manifest.ToJSON(text)
	if want := `{"a":{"big":9007199254740993,"list":[],"n":"012","on":"yes","text":"a\nb\n"},"kind":"X"}`; err != nil || string(back) != want {
		t.Errorf("%v, got %s", err, back)
	}
}
