package rawjson_test

import (
	"encoding/json"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestCursor steps through objects of strings and objects, and reports some of the inner values as
// passed. Keys and values must equal those of encoding/json, and [rawjson.Member] must find each
// key.
func TestCursor(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune{'a', '"', '\\', '{', '}', '[', ',', ':', 'é'}))
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(text, rapid.MapOfN(text, text, 0, 3)).Draw(t, "object")
		src, err := json.MarshalIndent(object, "", rapid.SampledFrom([]string{"", "\t"}).Draw(t, "indent"))
		must.Succeed(t, err)
		whole := string(src) + `, "behind": {}}`
		c, read := rawjson.Members(whole), map[string]map[string]string{}
		for {
			quoted, open, ok := c.Next()
			if !ok {
				break
			}
			key, at := rawjson.Value(quoted).Str(), c.Offset()
			if !rawjson.IsKey(quoted, key) || rawjson.IsKey(quoted, key+"a") || rawjson.Member(whole, key) != open {
				t.Fatalf("%s is not the key %q", quoted, key)
			}
			read[key] = map[string]string{}
			inner := rawjson.Members(open)
			for rapid.Bool().Draw(t, "go on") {
				quoted, value, ok := inner.Next()
				if !ok {
					break
				}
				name := rawjson.Value(quoted).Str()
				if got := rawjson.Closed(value).Str(); got != object[key][name] {
					t.Fatalf("%q of %q is %q", name, key, got)
				}
				c.Passed(at, at+inner.Offset(), 1)
			}
			for name, value := range rawjson.Closed(open).Fields() {
				read[key][name] = value.Str()
			}
		}
		if !maps.EqualFunc(read, object, maps.Equal) {
			t.Fatalf("read %v of %s", read, whole)
		}
	})
}
