package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// encoded returns the output of encoding/json without HTML escaping.
func encoded(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always can
	return string(b.Bytes()[:b.Len()-1])
}

// TestAppendString compares with encoding/json: every byte, every rune of the basic plane, and
// random texts of bytes and runes.
func TestAppendString(t *testing.T) {
	check := func(t interface{ Errorf(string, ...any) }, s string) {
		if got, want := string(rawjson.AppendString([]byte("x"), s)), "x"+encoded(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
	for r := range rune(0x10100) {
		check(t, "a"+string(r)+"b")
	}
	for c := range 256 {
		check(t, string([]byte{byte(c)}))
		check(t, string([]byte{'a', byte(c), 0x80}))
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		check(t, rapid.StringOf(rapid.RuneFrom([]rune{'"', '\\', 'a', '\n', 0, utf8.RuneError, 0x2028, 0x1f600})).Draw(t, "runes"))
	})
}

// BenchmarkAppendString compares with encoding/json in one run.
func BenchmarkAppendString(b *testing.B) {
	for name, s := range map[string]string{"plain": "a pod of the namespace default is pending", "escaped": "image \"nginx\" cannot be pulled – retry\n"} {
		b.Run(name, func(b *testing.B) {
			var out []byte
			for b.Loop() {
				out = rawjson.AppendString(out[:0], s)
			}
		})
		b.Run(name+"/encoding", func(b *testing.B) {
			for b.Loop() {
				encoded(s)
			}
		})
	}
}

// TestIdentity compares with encoding/json.
func TestIdentity(t *testing.T) {
	type metadata struct {
		Name            string `json:"name,omitempty"`
		Namespace       string `json:"namespace,omitempty"`
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	type object struct {
		APIVersion string   `json:"apiVersion,omitempty"`
		Kind       string   `json:"kind,omitempty"`
		Metadata   metadata `json:"metadata"`
	}
	rapid.Check(t, func(t *rapid.T) {
		var f [6]string
		for i := range f {
			f[i] = rapid.SampledFrom([]string{"", "a", `a"b`, "apps/v1"}).Draw(t, "field")
		}
		id := rawjson.Identity{APIVersion: f[0], Kind: f[1], Name: f[2], Namespace: f[3], UID: f[4], ResourceVersion: f[5]}
		want, _ := json.Marshal(object{f[0], f[1], metadata{f[2], f[3], f[4], f[5]}})
		if got := id.JSON(); got != string(want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}
